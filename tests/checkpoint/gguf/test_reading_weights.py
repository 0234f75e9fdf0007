"""The tensors of a GGUF file: types against gguf's numpy and MLX's reader, rows in our order."""

import logging
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGUFValueType, quants
from gguf import GGMLQuantizationType as Q
from hypothesis import given
from hypothesis import strategies as st
from tiny_gguf import HEADS, KV_HEADS, VOCAB, WIDTH, model_metadata, model_tensors, write_gguf

from mlxgpt.checkpoint import load_model
from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.footprint import footprint
from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.gguf.blocks import PACKED, UNPACKED, read_blocks
from mlxgpt.checkpoint.gguf.tensor_names import from_gguf_rows, gguf_name, our_name, to_gguf_rows
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, Quantization, weight_shapes

W = np.random.default_rng(1).normal(size=(6, 512)).astype(np.float32)
SCALES_AT = {"Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}


def packed(kind: Q) -> np.ndarray:
    """Return W in the blocks of a type, or random blocks with sane scales where gguf has only the
    way back."""
    if kind.name not in SCALES_AT:
        return quants.quantize(W, kind)
    per_block, size = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(2).integers(0, 256, (W.size // per_block, size), np.uint8)
    for at in SCALES_AT[kind.name]:
        blocks[:, at : at + 2] = np.array([0.01], "<f2").view(np.uint8)
    return blocks.reshape(len(W), -1)


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.Q4_0, Q.Q4_1, Q.Q8_0], ids=lambda k: k.name)
def test_mlx_reads_the_same_arrays(kind: Q, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", {}, {"t.weight": W}, {"t.weight": kind})
    theirs = mx.load(str(path))
    assert isinstance(theirs, dict)
    data = path.read_bytes()[-(W.size // GGML_QUANT_SIZES[kind][0]) * GGML_QUANT_SIZES[kind][1] :]
    ours = read_blocks(kind.name, W.shape, np.frombuffer(data, np.uint8))
    assert {f"t.{part}" for part in ours} == theirs.keys()
    for part, array in ours.items():
        assert mx.array_equal(array, theirs[f"t.{part}"].astype(array.dtype)).item(), part


@pytest.mark.parametrize("kind", [Q.Q4_0, Q.Q4_1, Q.Q8_0], ids=lambda k: k.name)
def test_packed_types_are_the_numbers_of_llama_cpp(kind: Q) -> None:
    data = packed(kind)
    parts = read_blocks(kind.name, W.shape, data.reshape(-1))
    ours = np.array(PACKED[kind.name].dequantize(parts, mx.float32))
    np.testing.assert_allclose(ours, quants.dequantize(data, kind), rtol=0, atol=2e-6)
    assert np.abs(ours - W).max() < 0.5


def test_bfloat16_keeps_its_bits() -> None:
    numbers = np.array([[1e38, -0.0, 70000.0, 1e-40]], np.float32)
    data = quants.quantize(numbers, Q.BF16)
    (weight,) = read_blocks("BF16", (1, 4), data.reshape(-1).view(np.uint8)).values()
    assert weight.dtype == mx.bfloat16
    assert np.array_equal(np.array(weight.view(mx.uint16)), data.view(np.uint16))


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "TQ1_0", "TQ2_0", *SCALES_AT])
def test_other_types_become_float16(kind: str) -> None:
    assert kind in UNPACKED
    data = packed(Q[kind])
    (weight,) = read_blocks(kind, W.shape, data.reshape(-1)).values()
    assert weight.dtype == mx.float16
    expected = quants.dequantize(data, Q[kind])
    assert np.array_equal(np.array(weight), expected.astype(np.float16))
    assert np.isfinite(expected).all()


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q5_1], ids=lambda k: k.name)
def test_a_vector_is_always_float32(kind: Q) -> None:
    data = {Q.F32: W[0], Q.F16: W[0].astype("f2")}.get(kind)
    data = quants.quantize(W[0], kind) if data is None else data
    parts = read_blocks(kind.name, W[0].shape, data.view(np.uint8))
    assert list(parts) == ["weight"]
    assert parts["weight"].dtype == mx.float32
    np.testing.assert_allclose(np.array(parts["weight"]), W[0], atol=0.2)


def test_gguf_computes_all_that_we_leave_to_it() -> None:
    for name in UNPACKED:
        per_block, size = GGML_QUANT_SIZES[Q[name]]
        assert quants.dequantize(np.zeros((1, size), np.uint8), Q[name]).shape == (1, per_block)


# Rows


@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([(), (3,), (2, 2)]))
def test_the_order_of_rows_goes_both_ways(heads: int, half: int, rest: tuple[int, ...]) -> None:
    shape = (heads * 2 * half, *rest)
    rows = np.arange(np.prod(shape)).reshape(shape)
    theirs = to_gguf_rows(rows, heads)
    assert np.array_equal(from_gguf_rows(theirs, heads), rows)
    for head in range(heads):
        for pair in range(half):
            start = head * 2 * half
            assert np.array_equal(theirs[start + 2 * pair], rows[start + pair])
            assert np.array_equal(theirs[start + 2 * pair + 1], rows[start + half + pair])


def test_every_weight_has_a_name_in_the_file_and_back() -> None:
    config = GPTConfig(
        vocab_size=9, tie_embeddings=False, qkv_bias=True, o_bias=True, mlp_bias=True, qk_norm=True
    )
    names = [name for name, _ in weight_shapes(config)]
    assert [our_name(gguf_name(name)) for name in names] == names
    assert gguf_name("model.layers.3.mlp.up_proj.weight") == "blk.3.ffn_up.weight"
    for odd in ("blk.03.ffn_up.weight", "blk.-1.ffn_up.weight", "blk.x.ffn_up.weight",
                "blk.0.ffn_gate_inp.weight", "rope_freqs.weight", "blk.٣.ffn_up.weight",
                f"blk.{'9' * 5000}.ffn_up.weight"):  # fmt: skip
        assert our_name(odd) is None, odd


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_1], ids=lambda k: k.name)
@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_weights_come_in_our_order(architecture: str, kind: Q, tmp_path: Path) -> None:
    tensors = model_tensors(architecture, biases=("attn_q", "attn_k", "attn_v"))
    types = {name: kind for name, w in tensors.items() if w.ndim == 2}
    path = write_gguf(tmp_path / "model", model_metadata(architecture), tensors, types)
    file = GGUFFile(path)
    weights, packed = dict(file.weights()), kind.name in PACKED
    assert set(file.quantization.values()) == ({PACKED[kind.name]} if packed else set())
    for name, shape in weight_shapes(file.config):
        module, _, part = name.rpartition(".")
        expected = tensors[gguf_name(name)]
        if name in types or expected.ndim == 2:
            if kind not in (Q.F32, Q.F16):
                expected = quants.dequantize(quants.quantize(expected, kind), kind)
            elif kind == Q.F16:
                expected = expected.astype(np.float16).astype(np.float32)
        for projection, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if architecture == "llama" and module.endswith(projection):
                expected = from_gguf_rows(expected, heads)
        how = file.quantization.get(module)
        if part == "weight" and how is not None:
            parts = {p: weights.pop(f"{module}.{p}") for p in how.parts}
            assert parts["scales"].dtype == parts["biases"].dtype == mx.float32
            array = how.dequantize(parts, mx.float32)
        else:
            array = weights.pop(name)
        assert array.shape == shape
        stored = {Q.F16: mx.float16, Q.BF16: mx.bfloat16}.get(kind, mx.float32)
        assert array.dtype == (mx.float32 if len(shape) == 1 else stored)
        np.testing.assert_allclose(np.array(array.astype(mx.float32)), expected, atol=2e-6)
    assert not weights


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    types = {"token_embd.weight": Q.Q8_0, "blk.0.attn_q.weight": Q.Q4_0}
    metadata = model_metadata() | {"tokenizer.chat_template": "{{ x }}"}
    file = GGUFFile(write_gguf(tmp_path / "x.gguf", metadata, model_tensors(), types))
    assert (file.format, file.family, file.chat_template) == ("GGUF", "llama", "{{ x }}")
    assert file.tensors()["token_embd.weight"] == StoredTensor("Q8_0", (VOCAB, WIDTH), VOCAB * 68)
    assert file.quantization == {
        "model.embed_tokens": Quantization(bits=8, group_size=32),
        "model.layers.0.self_attn.q_proj": Quantization(bits=4, group_size=32),
    }
    stored, plain = (load_model(file, as_stored=how) for how in (True, False))
    ids = mx.array([[1, 2, 3, 40]])
    np.testing.assert_allclose(np.array(stored(ids)), np.array(plain(ids)), atol=1e-4)


def test_vectors_beside_a_half_precision_matrix_become_half(tmp_path: Path) -> None:
    """One float32 vector would make all that comes after it float32."""
    types = {"token_embd.weight": Q.Q8_0, "blk.0.attn_q.weight": Q.F16}
    file = GGUFFile(write_gguf(tmp_path / "x.gguf", model_metadata(), model_tensors(), types))
    stored = load_model(file, as_stored=True)
    kinds = {name: array.dtype for name, array in stored.weights().items()}
    assert kinds["model.embed_tokens.weight"] == mx.uint32
    assert kinds["model.embed_tokens.scales"] == kinds["model.norm.weight"] == mx.float16
    assert kinds["model.layers.0.mlp.up_proj.weight"] == mx.float32  # a matrix stays what it is
    memory = sum(array.nbytes for array in stored.weights().values())
    assert footprint(file.tensors(), file.quantization, file.config).memory_bytes == memory


def test_a_file_in_float32_stays_so(tmp_path: Path) -> None:
    file = GGUFFile(write_gguf(tmp_path / "x.gguf", model_metadata(), model_tensors()))
    weights = load_model(file, as_stored=True).weights()
    assert {array.dtype for array in weights.values()} == {mx.float32}


def test_ids_that_end_a_text_are_named_or_known_by_their_text(tmp_path: Path) -> None:
    tokens = ["a", "<|eot_id|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>"]

    def ids(types: list[int], **named: int) -> frozenset[int]:
        entries = {"tokens": tokens, "token_type": types} | named
        more = {f"tokenizer.ggml.{name}": value for name, value in entries.items()}
        path = write_gguf(tmp_path / "x.gguf", model_metadata() | more, model_tensors())
        return GGUFFile(path).stop_ids

    assert ids([1, 3, 3, 3, 3], eos_token_id=3) == {1, 2, 3}
    assert ids([1, 3, 1, 3, 3], eot_token_id=0, eom_token_id=4) == {0, 1, 4}
    assert ids([1, 1, 1, 1, 1]) == frozenset()
    with pytest.raises(CheckpointError, match=r"eos_token_id must be an id, got '-1'"):
        write_gguf(
            tmp_path / "x.gguf",
            model_metadata() | {"tokenizer.ggml.eos_token_id": (-1, GGUFValueType.INT32)},
            model_tensors(),
        )
        _ = GGUFFile(tmp_path / "x.gguf").stop_ids


def test_what_is_computed_on_the_way_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tensors = model_tensors()
    types = {n: Q.Q5_1 if "ffn" in n else Q.Q5_0 for n, w in tensors.items() if w.ndim == 2}
    file = GGUFFile(write_gguf(tmp_path / "x.gguf", model_metadata(), tensors, types))
    with caplog.at_level(logging.WARNING):
        weights = dict(file.weights())
    (record,) = caplog.records
    assert "MLX has nothing like Q5_0, Q5_1; such weights become float16" in record.message
    assert file.quantization == {}
    assert weights["model.layers.0.mlp.up_proj.weight"].dtype == mx.float16


@pytest.mark.parametrize("kind", [Q.I8, Q.F64], ids=lambda k: k.name)
def test_other_types_are_refused_by_name(kind: Q, tmp_path: Path) -> None:
    tensors, size = model_tensors(), GGML_QUANT_SIZES[kind][1]
    tensors["token_embd.weight"] = np.zeros((VOCAB, WIDTH * size), np.uint8)
    types = {"token_embd.weight": kind}
    path = write_gguf(tmp_path / "x.gguf", model_metadata(), tensors, types)
    with pytest.raises(CheckpointError, match=rf"token_embd.* type {kind.name}; expected F32, F16"):
        GGUFFile(path).weights()


def test_a_wrong_set_of_tensors_is_refused(tmp_path: Path) -> None:
    whole = model_tensors()

    def refusal(tensors: dict[str, np.ndarray], **changes: int) -> str:
        path = write_gguf(tmp_path / "x.gguf", model_metadata(**changes), tensors)
        with pytest.raises(CheckpointError) as e:
            GGUFFile(path).weights()  # by the call, before anything is read
        assert str(path) in str(e.value)
        return str(e.value)

    assert "missing: 'blk.1.ffn_up.weight'" in refusal(
        {k: v for k, v in whole.items() if k != "blk.1.ffn_up.weight"}
    )
    assert "not part of this model: 'blk.0.ffn_gate_inp.weight'" in refusal(
        whole | {"blk.0.ffn_gate_inp.weight": np.ones((2, 2))}
    )
    assert "not part of this model: 'blk.1.attn_q.bias'" in refusal(
        whole | {"blk.1.attn_q.bias": np.ones(WIDTH)}
    )
    assert "'blk.0.attn_k.weight' has shape [32, 63], the metadata ask for [32, 64]" in refusal(
        whole | {"blk.0.attn_k.weight": np.ones((32, 63))}
    )
    assert "'blk.0.ffn_gate.weight' has shape [96, 64], the metadata ask for [95" in refusal(
        whole, feed_forward_length=95
    )
    assert "only 20 tensors" in refusal(whole, block_count=2**31)


@pytest.mark.parametrize("kind", [Q.F32, Q.F16, Q.Q8_0], ids=lambda k: k.name)
def test_numbers_that_are_not_finite_are_refused(kind: Q, tmp_path: Path) -> None:
    tensors = model_tensors()
    tensors["blk.1.ffn_up.weight"][3, 5] = np.inf
    types = {"blk.1.ffn_up.weight": kind}
    with np.errstate(all="ignore"):
        path = write_gguf(tmp_path / "x.gguf", model_metadata(), tensors, types)
    weights = GGUFFile(path).weights()
    with pytest.raises(CheckpointError, match=r"'blk\.1\.ffn_up\.weight' holds NaN or infinite"):
        list(weights)


def test_a_file_that_shrinks_meanwhile_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", model_metadata(), model_tensors())
    weights = GGUFFile(path).weights()
    path.write_bytes(path.read_bytes()[:-4096])
    with pytest.raises(CheckpointError, match="became shorter while it was read"):
        list(weights)
