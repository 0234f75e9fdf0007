"""Damaged models of every form, and adapters: each is refused in one line, or harmless."""

import json
import shutil
import struct
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt import seeding
from mlxgpt.checkpoint import (
    About,
    Adapter,
    export_directory,
    export_gguf,
    load,
    open_checkpoint,
    outgoing,
    save_model,
    write_adapter,
    write_json,
)
from mlxgpt.checkpoint.adapters import LowRank
from mlxgpt.checkpoint.summary import summarize
from mlxgpt.errors import MLXGPTError
from mlxgpt.model import GPT, Quantization, weight_shapes
from mlxgpt.text import train_bpe

Rng = np.random.Generator
MODELS = ("plain", "sharded", "quantized", "gguf", "packed gguf")
ADAPTERS = ("mlx-lm", "peft")
SEEDS = range(25)  # of each form: 175 in all
SECONDS = 5.0
PROMPT = "the cat sat"
ODD: list[Any] = [
    None, "", [], {}, [[1]], {"a": {}}, True, False, -1, 0, 1, 3, 2**31, 2**32, 2**63, 10**400, 0.5,
    -0.0, 1e308, float("inf"), float("nan"), "x" * 99, "a\nb", "\x00", "\ud800", "../x", "0", ".*",
    [None], ["a\nb"], {"a\nb": 1}, [True, -1], "qwen3", "yarn", "gpt2", {"rope_type": "dynamic"},
]  # fmt: skip
INTERESTING = [0, 1, 7, 0x0A, 0x7F, 0x80, 0xFF, 2**15, 2**16, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def sound_models(folder: Path, random_gpt: Callable[..., GPT]) -> dict[str, Path]:
    """Make a model in each form, and adapters for the plain one."""
    tokenizer = train_bpe([f"{PROMPT} on the mat, and the dog lay down by the fire\n" * 9], 280)
    model = random_gpt(n_embd=64, vocab_size=tokenizer.vocab_size + 3, max_seq_len=64)
    forms = {name: folder / name for name in (*MODELS, *ADAPTERS)}
    save_model(forms["plain"], model, tokenizer)
    (forms["plain"] / "chat_template.jinja").write_text(
        "{% for m in messages %}{{ m }}{% endfor %}"
    )
    shutil.copytree(forms["plain"], forms["sharded"])
    split(forms["sharded"])
    source, about = open_checkpoint(forms["plain"]), About(title="tiny", training=())
    four = outgoing(source, quantization=Quantization(bits=4, group_size=32))
    export_directory(source, forms["quantized"], four, about)
    gguf: dict[str, Literal[8] | None] = {"gguf": None, "packed gguf": 8}
    for name, bits in gguf.items():
        forms[name].mkdir()
        changed = outgoing(source, unpacked=True)
        export_gguf(source, forms[name] / "tiny.gguf", changed, about, bits=bits)
    shapes = dict(weight_shapes(model.config))
    paths = [f"model.layers.{i}.self_attn.{x}_proj" for i in (0, 1) for x in "qv"]
    changes = {}
    for path in paths:
        rows, columns = shapes[f"{path}.weight"]
        a, b = (
            mx.random.normal(size, key=seeding.key(1, f"test/{path}/{size}")) / 4
            for size in ((columns, 4), (4, rows))
        )
        changes[path] = LowRank(a=a, b=b, scale=1.5)
    for form in ADAPTERS:
        write_adapter(forms[form], Adapter(fine_tune_type="lora", modules=changes), form)
    return forms


def split(directory: Path) -> None:
    """Put the weights into three shards, as other tools would."""
    file = directory / "model.safetensors"
    tensors = mx.load(str(file))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    file.unlink()
    where = {}
    for i in range(3):
        name = f"model-{i + 1:05}-of-00003.safetensors"
        part = {n: tensors[n] for n in sorted(tensors)[i::3]}
        mx.save_safetensors(str(directory / name), part)
        where |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 1}, "weight_map": where}
    write_json(directory / "model.safetensors.index.json", index)


# Ways to damage


def mutate(folder: Path, rng: Rng) -> str:
    """Damage one file of a model or an adapter; return what was done, for a report."""
    files = sorted(f for f in folder.iterdir() if f.name not in ("README.md", "tokenizer.json"))
    file = files[rng.integers(len(files))]
    ways: list[Callable[[Path, Rng], None]] = [cut]
    if file.suffix == ".json":
        ways = [odd_json] * 5 + [cut, flip]
    elif file.suffix == ".safetensors":
        ways = [odd_header] * 3 + [flip_header] * 2 + [cut, flip, odd_number, lengthen]
    elif file.suffix == ".gguf":
        ways = [flip_header] * 2 + [odd_bytes] * 4 + [cut, flip, lengthen]
    way = ways[rng.integers(len(ways))]
    way(file, rng)
    return f"{way.__name__} of {file.name}"


def cut(file: Path, rng: Rng) -> None:
    content = file.read_bytes()
    start = rng.integers(min(len(content), 3000) if rng.integers(2) else len(content))
    file.write_bytes(content[:start])


def lengthen(file: Path, rng: Rng) -> None:
    file.write_bytes(file.read_bytes() + bytes(int(rng.integers(1, 99))))


def flip(file: Path, rng: Rng, end: int | None = None) -> None:
    content = bytearray(file.read_bytes())
    for place in rng.integers(0, end or len(content), rng.integers(1, 4)):
        content[place] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)


def header_end(content: bytes) -> int:
    if content[:4] == b"GGUF":  # up to a name of its last tensors
        return content.index(b"blk.1.ffn_down.weight")
    return 8 + struct.unpack("<Q", content[:8])[0]


def flip_header(file: Path, rng: Rng) -> None:
    flip(file, rng, header_end(file.read_bytes()))


def odd_bytes(file: Path, rng: Rng) -> None:
    """Write, insert or take away a number or a line break somewhere in a header."""
    content = bytearray(file.read_bytes())
    at, width = int(rng.integers(header_end(bytes(content)))), int(rng.choice([1, 2, 4, 8]))
    number = INTERESTING[rng.integers(len(INTERESTING))] % (1 << 8 * width)
    new = number.to_bytes(width, "little")
    overwrite, insert = rng.integers(2, size=2)
    content[at : at + (width if overwrite else 0)] = new if insert or not overwrite else b""
    file.write_bytes(content)


def odd_header(file: Path, rng: Rng) -> None:
    content = file.read_bytes()
    end = header_end(content)
    text = json.dumps(odd_tree(json.loads(content[8:end]), rng)).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + content[end:])


def odd_number(file: Path, rng: Rng) -> None:
    """Make one number of a tensor infinite or none, whatever its bytes mean."""
    content = bytearray(file.read_bytes())
    end = header_end(bytes(content))
    at = end + 4 * int(rng.integers((len(content) - end) // 4))
    content[at : at + 4] = struct.pack("<f", rng.choice([np.nan, np.inf, -np.inf, 1e38]))
    file.write_bytes(content)


def odd_json(file: Path, rng: Rng) -> None:
    file.write_text(json.dumps(odd_tree(json.loads(file.read_text()), rng)))


def odd_tree(value: Any, rng: Rng) -> Any:
    """Change one value somewhere in a JSON tree, or remove or rename one key."""
    odd = ODD[rng.integers(len(ODD))]
    if not isinstance(value, dict | list) or not value:
        return odd
    keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[rng.integers(len(keys))]
    way = rng.integers(10)
    if isinstance(value[key], dict | list) and value[key] and way < 8:
        value[key] = odd_tree(value[key], rng)
    elif way == 8:
        del value[key]
    elif way == 9 and isinstance(value, dict):
        value[str(odd)[:20]] = value.pop(key)
    else:
        old = value[key]
        near = [odd, odd, old + 1, old * 2, -old] if type(old) in (int, float) else [odd]
        value[key] = near[rng.integers(len(near))]
    return value


# What comes of it


def run(folder: Path, base: Path | None) -> np.ndarray:
    """Use all of a model, or of an adapter on `base`, and return logits."""
    model, tokenizer = load(folder) if base is None else load(base, adapter=folder)
    if base is None:
        checkpoint = open_checkpoint(folder)
        _ = checkpoint.stop_ids, checkpoint.chat_template, checkpoint.tensors()
        summarize(checkpoint)
    ids = tokenizer.encode(PROMPT)
    assert tokenizer.decode(ids) == PROMPT
    return np.array(model(mx.array([ids])).astype(mx.float32))


def outcome(folder: Path, base: Path | None) -> np.ndarray | str:
    """Return logits, or the message with which the folder is refused."""
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a note is no harm
            result: np.ndarray | str = run(folder, base)
    except MLXGPTError as e:
        result = str(e)
        result.encode()  # it can be printed
        assert len(result.splitlines()) == 1, result
        assert str(folder) in result, result
        assert len(result) < 1500, result
    assert time.monotonic() - start < SECONDS
    return result


NAUGHTY: dict[str, tuple[str, str, dict[str, Any]]] = {  # form, file, keys
    "layers that no list can hold": ("plain", "config.json", {"num_hidden_layers": 2**31 - 1}),
    "the same, each with a window": (
        "plain",
        "config.json",
        {"num_hidden_layers": 2**31 - 1, "model_type": "mistral"},
    ),
    "the same, some without positions": (
        "plain",
        "config.json",
        {"num_hidden_layers": 10**20, "model_type": "smollm3"},
    ),
    "a line break in a method": (
        "plain", "config.json", {"quantization_config": {"quant_method": "a\nb"}}
    ),
    "a line break in a path": (
        "plain", "config.json", {"quantization": {"bits": 4, "group_size": 32, "a\nb": {"x\ny": 1}}}
    ),
    "a very long list": ("plain", "config.json", {"hidden_act": ["x"] * 9999}),
    "a very long name": ("plain", "config.json", {"model_type": "x" * 9999}),
    "ids that are none": ("plain", "generation_config.json", {"eos_token_id": ["x"] * 9999}),
    "a file with a long name": (
        "plain", "model.safetensors.index.json", {"weight_map": {"a": "x" * 9999}}
    ),
    "a line break in a pattern": ("peft", "adapter_config.json", {"rank_pattern": {"a\nb": "x"}}),
}  # fmt: skip


@pytest.mark.parametrize("case", NAUGHTY.values(), ids=NAUGHTY)
def test_what_a_config_says_does_not_spoil_the_message(
    case: tuple[str, str, dict[str, Any]], sound: dict[str, Path], tmp_path: Path
) -> None:
    form, name, keys = case
    folder = tmp_path / "model"
    shutil.copytree(sound[form], folder)
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | keys))
    assert isinstance(outcome(folder, sound["plain"] if form in ADAPTERS else None), str)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, random_gpt: Callable[..., GPT]) -> Any:
    return sound_models(tmp_path_factory.mktemp("sound"), random_gpt)


@pytest.mark.parametrize("form", [*MODELS, *ADAPTERS])
@pytest.mark.timeout(120)
def test_damage_is_refused_in_one_line_or_harmless(
    form: str, sound: dict[str, Path], tmp_path: Path
) -> None:
    base = sound["plain"] if form in ADAPTERS else None
    expected = outcome(sound[form], base)
    assert isinstance(expected, np.ndarray), expected
    refused = 0
    for seed in SEEDS:
        folder = tmp_path / str(seed)
        shutil.copytree(sound[form], folder)
        what = mutate(folder, np.random.Generator(np.random.Philox(key=seed)))
        try:
            result = outcome(folder, base)
        except Exception as e:
            raise AssertionError(f"{form}, {seed}: {what} raised {type(e).__name__}") from e
        refused += isinstance(result, str)
    assert refused >= len(SEEDS) // 2
