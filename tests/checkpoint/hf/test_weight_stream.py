"""Weights come one after the other: checked before anything is read, and never held twice."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import load_model, open_checkpoint, read_json, save_model, write_json
from mlxgpt.checkpoint.finite import all_finite
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, weight_shapes
from mlxgpt.text import train_char

GATE, DOWN = "model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight"


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abcdefghij"])
    model = random_gpt(vocab_size=tokenizer.vocab_size, tie_embeddings=False, n_layer=3)
    save_model(tmp_path / "m", model, tokenizer)
    return tmp_path / "m"


def tensors_of(directory: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    return tensors


def store(directory: Path, tensors: dict[str, mx.array]) -> None:
    mx.save_safetensors(str(directory / "model.safetensors"), tensors)


def test_they_come_in_the_order_of_the_network_wherever_they_stand(saved: Path) -> None:
    before = tensors_of(saved)
    expected = [name for name, _ in weight_shapes(open_checkpoint(saved).config)]
    half = sorted(before)[::2]
    parts = {"model-00001-of-00002.safetensors": {n: before[n] for n in half}}
    parts["model-00002-of-00002.safetensors"] = {n: w for n, w in before.items() if n not in half}
    (saved / "model.safetensors").unlink()
    weight_map = {n: file for file, part in parts.items() for n in part}
    write_json(saved / "model.safetensors.index.json", {"weight_map": weight_map})
    for file, part in parts.items():
        mx.save_safetensors(str(saved / file), part)
    weights = list(open_checkpoint(saved).weights())
    assert [name for name, _ in weights] == expected
    assert all(mx.array_equal(w, before[name]) for name, w in weights)


def test_the_call_checks_and_the_numbers_are_checked_in_turn(saved: Path) -> None:
    tensors = tensors_of(saved)
    store(saved, tensors | {GATE: tensors[GATE].T})
    with pytest.raises(CheckpointError, match="gate_proj"):
        open_checkpoint(saved).weights()
    store(saved, tensors | {GATE: tensors[GATE] * float("inf")})
    weights = open_checkpoint(saved).weights()
    assert next(weights)[0] == "model.embed_tokens.weight"
    with pytest.raises(CheckpointError, match=r"gate_proj\.weight' holds NaN"):
        list(weights)


def test_exchanged_shapes_of_the_right_total_size_are_named(saved: Path) -> None:
    tensors = tensors_of(saved)
    assert tensors[GATE].shape == tensors[DOWN].shape[::-1]
    swapped = {GATE: tensors[DOWN], DOWN: tensors[GATE]}
    size = (saved / "model.safetensors").stat().st_size
    store(saved, tensors | swapped)
    assert (saved / "model.safetensors").stat().st_size == size
    with pytest.raises(CheckpointError, match=r"mlp\.(gate|down)_proj\.weight' has shape"):
        load_model(saved)


def test_a_file_that_shrinks_while_it_is_read_is_refused(saved: Path) -> None:
    weights = open_checkpoint(saved).weights()
    next(weights)
    with (saved / "model.safetensors").open("r+b") as f:
        f.truncate(2000)
    with pytest.raises(CheckpointError, match="cannot be read"):
        list(weights)


def test_a_file_that_is_replaced_while_it_is_read_does_not_matter(saved: Path) -> None:
    before = tensors_of(saved)
    weights = open_checkpoint(saved).weights()
    mx.save_safetensors(str(saved / "new.safetensors"), {n: w * 2 for n, w in before.items()})
    (saved / "new.safetensors").replace(saved / "model.safetensors")
    assert all(mx.array_equal(w, before[name]) for name, w in weights)


def test_what_was_given_out_is_not_held(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    tokenizer = train_char(["abcdefghij"])
    model = random_gpt(vocab_size=tokenizer.vocab_size, n_embd=256, n_layer=6)
    total = sum(w.nbytes for w in model.weights().values())
    largest = max(w.nbytes for w in model.weights().values())
    save_model(tmp_path, model, tokenizer)
    del model
    mx.clear_cache()
    weights = open_checkpoint(tmp_path).weights()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for _, w in weights:
        assert mx.get_active_memory() - before <= w.nbytes + 4096
        del w
    assert mx.get_peak_memory() - before <= largest + 4096 < total / 10


def test_all_finite_sees_every_number_of_every_type() -> None:
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        largest = mx.finfo(dtype).max
        sound = mx.full((3, 100_001), largest, dtype=dtype)
        sound[1, :5] = mx.array([-largest, 0.0, -0.0, mx.finfo(dtype).min, 1e-7], dtype=dtype)
        assert all_finite(sound)
        for value in (float("inf"), -float("inf"), float("nan"), -float("nan")):
            for row, column in ((0, 0), (2, 100_000), (2, 62_142), (2, 62_143)):
                bad = mx.array(sound)
                bad[row, column] = value
                assert not all_finite(bad)
        assert all_finite(mx.zeros((0, 4), dtype=dtype))
        assert all_finite(mx.swapaxes(sound, 0, 1))


PEAK = """
import json, pathlib, resource, sys
import mlxgpt
import mlx.core as mx
from mlxgpt.checkpoint import load_model
if len(sys.argv) > 1:
    weights = load_model(sys.argv[1]).weights()
    total = sum(w.nbytes for w in weights.values())
else:
    mx.eval(mx.ones(4))
    total = 0
status = pathlib.Path("/proc/self/status")
if status.exists():  # ru_maxrss of a child of Linux begins with the size of its parent
    line = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
    peak = int(line.split()[1]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([peak, total]))
"""


def peak(*arguments: str) -> tuple[int, int]:
    command = [sys.executable, "-c", PEAK, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_a_load_takes_little_more_than_its_weights(
    dtype: mx.Dtype, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    tokenizer = train_char(["abcdefghij"])
    sizes = {"n_layer": 12, "n_embd": 512, "n_head": 8, "vocab_size": 16000}
    model = random_gpt(tie_embeddings=False, **sizes)
    model.set_weights({n: w.astype(dtype) for n, w in model.weights().items()})
    save_model(tmp_path, model, tokenizer)
    assert read_json(tmp_path / "config.json")["torch_dtype"] == str(dtype).rpartition(".")[2]
    before, _ = peak()
    after, weights = peak(str(tmp_path))
    assert weights > 150e6
    print(f"peak over weights: {(after - before) / weights:.3f}")
    assert (after - before) / weights < 1.25
