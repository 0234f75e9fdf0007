"""Damaged model directories: each is refused in one line, or harmless; none crashes."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import load, open_checkpoint, save_model
from mlxgpt.errors import MLXGPTError
from mlxgpt.model import GPT
from mlxgpt.text import train_char

WEIGHTS = "model.safetensors"
SMALL = ["config.json", "generation_config.json", "model.safetensors.index.json"]
SMALL += ["tokenizer.json", "tokenizer_config.json"]
ODD: list[Any] = [None, "", [], {}, [[1]], {"a": {}}, True, -1, 0, 3, 2**31, 10**30, 0.5, "x" * 99]
ODD += [float("inf"), float("nan"), "sliding_attention", "qwen3", {"rope_type": "yarn"}]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abcdefghij"])
    directory = tmp_path_factory.mktemp("sound")
    save_model(directory, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return directory


def cut(directory: Path, rng: np.random.Generator) -> None:
    file = directory / str(rng.choice([WEIGHTS, *SMALL]))
    content = file.read_bytes()
    file.write_bytes(content[: rng.integers(len(content))])


def flip_bits_of_a_header(directory: Path, rng: np.random.Generator) -> None:
    content = bytearray((directory / WEIGHTS).read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    for place in rng.integers(0, 8 + length, rng.integers(1, 4)):
        content[place] ^= 1 << int(rng.integers(8))
    (directory / WEIGHTS).write_bytes(content)


def exchange_sizes(directory: Path, rng: np.random.Generator) -> None:
    """Give a tensor another shape of the same size, or another name or dtype."""
    content = (directory / WEIGHTS).read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    name = str(rng.choice([n for n in header if n != "__metadata__"]))
    kind = rng.integers(4)
    if kind == 0:
        header[name]["shape"] = [1, *header[name]["shape"]]
    elif kind == 1:
        header[name]["shape"] = [*header[name]["shape"][::-1], 1]
    elif kind == 2:
        header[f"{name}x"] = header.pop(name)
    else:
        header[name]["dtype"] = str(rng.choice(["I32", "U32", "F64", "F8_E4M3", "BF16", "?"]))
    text = json.dumps(header).encode()
    (directory / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def odd_values(directory: Path, rng: np.random.Generator) -> None:
    file = directory / str(rng.choice(SMALL))
    raw = json.loads(file.read_text())
    for key in rng.choice(sorted(raw), 2):
        raw[str(key)] = ODD[rng.integers(len(ODD))]
    file.write_text(json.dumps(raw))


def odd_numbers(directory: Path, rng: np.random.Generator) -> None:
    tensors = mx.load(str(directory / WEIGHTS))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    name = str(rng.choice(sorted(tensors)))
    values = np.array(tensors[name])
    values.reshape(-1)[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf])
    mx.save_safetensors(str(directory / WEIGHTS), tensors | {name: mx.array(values)})


def remove_or_replace(directory: Path, rng: np.random.Generator) -> None:
    file = directory / str(rng.choice([WEIGHTS, *SMALL]))
    file.unlink()
    if rng.integers(2):
        file.mkdir()


MUST_FAIL = (flip_bits_of_a_header, exchange_sizes, odd_numbers)
ALL = (*MUST_FAIL, cut, odd_values, remove_or_replace)


@pytest.mark.parametrize("mutate", ALL, ids=lambda f: f.__name__)
@pytest.mark.timeout(60)
def test_damage_is_refused_in_one_line(
    mutate: Callable[[Path, np.random.Generator], None], sound: Path, tmp_path: Path
) -> None:
    refused = 0
    for seed in range(25):
        directory = tmp_path / str(seed)
        shutil.copytree(sound, directory)
        mutate(directory, np.random.Generator(np.random.Philox(key=seed)))
        try:
            load(directory)
            _ = open_checkpoint(directory).stop_ids, open_checkpoint(directory).chat_template
        except MLXGPTError as e:
            refused += 1
            message = str(e)
            assert "\n" not in message
            assert str(directory) in message, message
            assert len(message) < 1000
    print(f"{refused} of 25 refused")
    assert refused == 25 if mutate in (exchange_sizes, odd_numbers) else refused > 8
