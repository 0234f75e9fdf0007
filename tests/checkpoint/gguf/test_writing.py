"""A GGUF file holds the weights that were given, of the types asked for, or it is not there."""

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf.quants import dequantize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from written_models import TOKENIZER, model_of, read_back, written

from mlxgpt.checkpoint.gguf.header import read_gguf_header
from mlxgpt.checkpoint.gguf.tensor_names import gguf_name
from mlxgpt.checkpoint.gguf.writing import _as_numpy
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig, RopeScaling, weight_shapes

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"n_kv_head": 2, "tie_embeddings": False}),
    "heads of 6": ("llama", {"head_dim": 6, "qkv_bias": True, "o_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {"qkv_bias": True}),
    "qwen3": ("qwen3", {"qk_norm": True, "n_kv_head": 1}),
    "smollm3": ("smollm3", {"no_rope_layers": (3,)}),
}


@pytest.fixture
def model(random_gpt: Callable[..., GPT]) -> GPT:
    return model_of(random_gpt, TOKENIZER)


def types_of(path: Path) -> dict[str, str]:
    return {name: place.dtype for name, place in read_gguf_header(path).tensors.items()}


@pytest.mark.parametrize(("architecture", "fields"), NETWORKS.values(), ids=NETWORKS)
def test_the_weights_come_back_bit_for_bit(
    architecture: str, fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model = model_of(random_gpt, TOKENIZER, **fields)
    path = written(tmp_path / "model.gguf", model)
    again = read_back(path, model.config, architecture)
    assert again.keys() == model.weights().keys()
    for name, w in model.weights().items():
        assert mx.array_equal(again[name], w), name
    assert set(types_of(path).values()) == {"F32"}
    assert gguf.GGUFReader(path).fields["general.architecture"].contents() == architecture
    assert mx.load(str(path)).keys() == types_of(path).keys()


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_numbers_are_those_of_the_type_asked_for(dtype: mx.Dtype, tmp_path: Path) -> None:
    model = GPT(GPTConfig(n_layer=1, n_embd=32, n_head=2, vocab_size=TOKENIZER.vocab_size))
    path = written(tmp_path / "a.gguf", model, dtype=dtype)
    again = read_back(path, model.config, "llama")
    for name, w in model.weights().items():
        kept = w if w.ndim == 1 else w.astype(dtype).astype(mx.float32)
        assert mx.array_equal(again[name], kept), name
    # and None keeps what comes
    stored = [(name, w.astype(dtype)) for name, w in model.weights().items()]
    same = written(tmp_path / "b.gguf", model, weights=stored)
    assert same.read_bytes() == path.read_bytes()
    kinds = types_of(path)
    short = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}[dtype]
    assert {kinds.pop(name) for name in list(kinds) if "norm" in name} == {"F32"}
    assert set(kinds.values()) == {short}


def test_dtypes_may_be_mixed_and_the_order_any(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model = model_of(random_gpt, TOKENIZER, n_embd=36, n_head=2)  # a file that ends on no border
    weights = list(model.weights().items())[::-1]
    mixed = [(n, w.astype(mx.bfloat16) if n.endswith("q_proj.weight") else w) for n, w in weights]
    path = written(tmp_path / "model.gguf", model, weights=mixed)
    again = read_back(path, model.config, "llama")
    for name, w in mixed:
        assert mx.array_equal(again[name], w.astype(mx.float32)), name
    assert list(types_of(path)) == [gguf_name(name) for name, _ in weights]
    places = list(read_gguf_header(path).tensors.values())
    for place, following in pairwise(places):  # llama.cpp wants them in a row
        assert following.offset == -(-(place.offset + place.nbytes) // 32) * 32
    assert path.stat().st_size == -(-(places[-1].offset + places[-1].nbytes) // 32) * 32


BLOCKS = hnp.arrays(np.int32, (32,), elements=st.integers(-(2**20), 2**20))


def llama_cpp_blocks(numbers: np.ndarray, bits: int) -> bytes:
    """Quantize blocks of 32 one number at a time, as llama.cpp's reference does, in float32."""
    out = b""
    for block in numbers.reshape(-1, 32):
        largest = block[np.abs(block).argmax()]
        step = np.float32(largest / -8 if bits == 4 else abs(largest) / 127)
        inverse = np.float32(0 if step == 0 else 1 / step)
        scaled = block * inverse
        out += np.float16(step).tobytes()
        if bits == 8:
            rounded = np.sign(scaled) * np.floor(np.abs(scaled.astype(np.float64)) + 0.5)
            out += rounded.astype(np.int8).tobytes()
        else:
            fours = np.minimum(15, np.trunc(scaled + np.float32(8.5))).astype(np.uint8)
            out += (fours[:16] | fours[16:] << 4).tobytes()
    return out


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_are_those_of_llama_cpp(bits: int, model: GPT, tmp_path: Path) -> None:
    path = written(tmp_path / "model.gguf", model, bits=bits)
    header, data = read_gguf_header(path), path.read_bytes()
    for name, w in model.weights().items():
        place = header.tensors[gguf_name(name)]
        if w.ndim == 1 or "q_proj" in name or "k_proj" in name:
            continue
        assert place.dtype == f"Q{bits}_0"
        stored = data[place.offset : place.offset + place.nbytes]
        assert stored == llama_cpp_blocks(np.array(w), bits), name
    # MLX reads them itself
    theirs = mx.load(str(path))
    assert isinstance(theirs, dict)
    again = read_back(path, model.config, "llama")["model.layers.0.mlp.up_proj.weight"]
    parts = [theirs[f"blk.0.ffn_up.{part}"] for part in ("weight", "scales", "biases")]
    whole = mx.dequantize(*parts, group_size=32, bits=bits)
    assert mx.abs(whole.astype(mx.float32) - again).max().item() < 5e-3


@given(BLOCKS, st.sampled_from([4, 8]))
def test_any_block_is_that_of_llama_cpp(whole: np.ndarray, bits: int) -> None:
    block = whole.astype(np.float32) / 3000
    stored = _as_numpy(mx.array(block)[None], f"Q{bits}_0")
    assert stored.tobytes() == llama_cpp_blocks(block, bits)


def test_numbers_too_small_for_a_scale_become_zero() -> None:
    tiny = mx.full((1, 32), 1e-40)
    for kind in ("Q4_0", "Q8_0"):
        stored = _as_numpy(tiny, kind)
        assert not dequantize(stored, gguf.GGMLQuantizationType[kind]).any()


def test_what_cannot_be_quantized_is_named(
    tmp_path: Path, random_gpt: Callable[..., GPT], caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of(random_gpt, TOKENIZER, intermediate_size=40)
    types = types_of(written(tmp_path / "m.gguf", model, bits=4, dtype=mx.float16))
    odd = {f"blk.{i}.ffn_down.weight" for i in range(4)}
    assert {name for name, kind in types.items() if kind == "F16"} == odd
    assert types["blk.0.ffn_up.weight"] == types["token_embd.weight"] == "Q4_0"
    assert "no multiple of 32: blk.0.ffn_down.weight" in caplog.text
    assert "and 1 more" in caplog.text


def test_rows_are_converted_some_at_a_time(
    model: GPT, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {
        options: written(tmp_path / "a.gguf", model, **dict(options)).read_bytes()
        for options in [(), (("bits", 4),), (("dtype", mx.bfloat16),)]
    }
    monkeypatch.setattr("mlxgpt.checkpoint.gguf.writing._BLOCK_BYTES", 3000)
    for options, data in whole.items():
        assert written(tmp_path / "b.gguf", model, **dict(options)).read_bytes() == data


def test_one_weight_after_the_other_is_held(tmp_path: Path) -> None:
    config = GPTConfig(n_layer=12, n_embd=256, n_head=4, vocab_size=TOKENIZER.vocab_size)
    shapes, most = dict(weight_shapes(config)), 0
    largest = 4 * max(int(np.prod(shape)) for shape in shapes.values())
    before = mx.get_active_memory()

    def weights() -> Iterator[tuple[str, mx.array]]:
        nonlocal most
        for name, shape in shapes.items():
            most = max(most, mx.get_active_memory() - before)
            w = mx.ones(shape)
            mx.eval(w)
            yield name, w
            del w

    model = GPT(config)
    written(tmp_path / "model.gguf", model, weights=weights(), bits=8)
    assert most <= 3 * largest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing: 'model.norm.weight'"),
        (lambda w: w.update(extra=mx.ones(3)), "'extra' is not a weight of this model"),
        (lambda w: w.update({"model.norm.weight": mx.ones(3)}), r"has shape \[3\]"),
        (lambda w: w.update({"model.norm.weight": mx.ones(64, mx.int32)}), "dtype .*int32"),
        (lambda w: w.update({"model.norm.weight": mx.full(64, mx.nan)}), "norm.weight' holds nan"),
        (lambda w: w.update({"model.norm.weight": mx.full(64, -mx.inf)}), "holds inf"),
        (lambda w: w.clear(), "missing: 'model.embed_tokens.weight'"),
    ],
)
def test_wrong_weights_leave_the_old_file(
    change: Callable[[dict[str, mx.array]], None], message: str, model: GPT, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("the old one")
    weights = model.weights()
    change(weights)
    with pytest.raises(CheckpointError, match=message) as caught:
        written(path, model, weights=weights.items())
    assert "\n" not in str(caught.value)
    assert path.read_text() == "the old one"
    assert os.listdir(tmp_path) == ["model.gguf"]


@pytest.mark.parametrize(
    ("largest", "options", "fits"),
    [
        (70000.0, {"dtype": mx.float16}, False),
        (70000.0, {"dtype": mx.bfloat16}, True),
        (70000.0, {"bits": 4}, True),
        (1e6, {"bits": 4}, False),
        (1e6, {"bits": 8}, True),
        (1e7, {"bits": 8}, False),
    ],
    ids=str,
)
def test_numbers_too_large_for_the_type_are_refused(
    largest: float, options: dict[str, Any], fits: bool, model: GPT, tmp_path: Path
) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    weights = model.weights() | {name: mx.full(model.weights()[name].shape, -largest)}
    path = tmp_path / "model.gguf"
    if not fits:
        with pytest.raises(CheckpointError, match=r"blk.1.ffn_up.weight' holds .* another dtype"):
            written(path, model, weights=weights.items(), **options)
        return
    written(path, model, weights=weights.items(), **options)
    assert mx.isfinite(read_back(path, model.config, "llama")[name]).all()


def test_a_full_disk_is_one_line(model: GPT, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot write .*file/model.gguf"):
        written(tmp_path / "file" / "model.gguf", model)


def test_llama3_is_a_tensor(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    scaling = RopeScaling(rope_type="llama3", factor=8, original_max_position_embeddings=64)
    model = model_of(random_gpt, TOKENIZER, n_head=4, rope_scaling=scaling)
    factors = mx.load(str(written(tmp_path / "model.gguf", model)))
    assert isinstance(factors, dict)
    known = [1, 0.2443846, 0.01304226, 0.00395285, 0.00125, 0.000395285, 0.000125, 0.0000395285]
    plain = 1e4 ** -(np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(plain / np.array(factors["rope_freqs.weight"]), known, rtol=1e-4)
