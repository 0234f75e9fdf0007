"""What is exported computes what the source computes, and the source stays as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import (
    About,
    Adapter,
    Checkpoint,
    attach,
    export_directory,
    export_gguf,
    load,
    load_model,
    open_checkpoint,
    outgoing,
    save_model,
)
from mlxgpt.checkpoint.adapters import LowRank
from mlxgpt.checkpoint.exporting import packable
from mlxgpt.checkpoint.shards import write_weights
from mlxgpt.errors import CheckpointError, MLXGPTWarning
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import train_bpe

Make = Callable[..., GPT]
TEXT = "the cat sat on the mat, and the dog lay down by the fire; 3 + 4 = 7\n" * 20
TOKENIZER = train_bpe([TEXT], 300)
IDS = mx.array(
    np.random.Generator(np.random.Philox(key=1)).integers(0, TOKENIZER.vocab_size, (2, 40)).tolist()
)
ABOUT = About(title="a model")


@pytest.fixture
def source(tmp_path: Path, random_gpt: Make) -> Checkpoint:
    model = random_gpt(vocab_size=TOKENIZER.vocab_size, n_embd=64, max_seq_len=64)
    save_model(tmp_path / "source", model, TOKENIZER)
    return open_checkpoint(tmp_path / "source")


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def logits(where: Path, **how: Any) -> np.ndarray:
    return np.array(load_model(where, **how)(IDS).astype(mx.float32))


def exported(source: Checkpoint, out: Path, **how: Any) -> Path:
    before = contents(source.path)
    export_directory(source, out, outgoing(source, **how), ABOUT)
    assert contents(source.path) == before
    return out


def test_an_unchanged_export_is_bit_equal(source: Checkpoint, tmp_path: Path) -> None:
    out = exported(source, tmp_path / "out")
    theirs, tokenizer = load(out)
    ours = load_model(source)
    assert tokenizer == TOKENIZER
    assert theirs.weights().keys() == ours.weights().keys()
    assert all(mx.array_equal(w, ours.weights()[n]) for n, w in theirs.weights().items())
    assert open_checkpoint(out).stop_ids == {TOKENIZER.eot_id}


@pytest.mark.parametrize(
    ("dtype", "bound"), [(mx.float16, 0.2), (mx.bfloat16, 2.0)], ids=["float16", "bfloat16"]
)
def test_another_precision(
    dtype: mx.Dtype, bound: float, source: Checkpoint, tmp_path: Path
) -> None:
    out = exported(source, tmp_path / "out", dtype=dtype)
    expected = {n: w.astype(dtype) for n, w in load_model(source).weights().items()}
    stored = dict(open_checkpoint(out).weights())
    assert all(mx.array_equal(w, expected[n]) for n, w in stored.items())
    assert json.loads((out / "config.json").read_text())["torch_dtype"] in str(dtype)
    difference = np.abs(logits(out) - logits(source.path)).max()
    assert 0 < difference < bound


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (8, 64)])
def test_quantized_weights_are_those_of_mlx(
    bits: int, group: int, source: Checkpoint, tmp_path: Path
) -> None:
    how = Quantization(bits=bits, group_size=group)
    out = exported(source, tmp_path / "out", quantization=how)
    checkpoint = open_checkpoint(out)
    assert set(checkpoint.quantization.values()) == {how}
    assert "model.embed_tokens" in checkpoint.quantization
    model = load_model(source)
    for name, w in model.weights().items():
        if w.ndim == 2:
            parts = how.quantize(w)
            model.set_weights({name: how.dequantize(parts, mx.float32)})
    np.testing.assert_allclose(logits(out), np.array(model(IDS)), atol=1e-5)
    np.testing.assert_allclose(logits(out, as_stored=True), logits(out), atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_mlx_lm_opens_a_quantized_export(
    source: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import mlx_lm

    how = Quantization(bits=4, group_size=32)
    out = exported(source, tmp_path / "out", quantization=how)
    theirs, *_ = mlx_lm.load(str(out))
    np.testing.assert_allclose(logits(out), np.array(theirs(IDS)), atol=1e-3)


def test_a_quantized_source_is_kept_packed_or_unpacked(source: Checkpoint, tmp_path: Path) -> None:
    how = Quantization(bits=8, group_size=32)
    packed = open_checkpoint(exported(source, tmp_path / "packed", quantization=how))
    again = exported(packed, tmp_path / "again")
    assert open_checkpoint(again).quantization == packed.quantization
    plain = exported(packed, tmp_path / "plain", dtype=mx.float32)
    assert not open_checkpoint(plain).quantization
    for out in (again, plain):
        np.testing.assert_array_equal(logits(out), logits(packed.path))


@pytest.mark.parametrize("form", ["directory", "gguf"])
def test_the_round_trip_through_other_forms(form: str, source: Checkpoint, tmp_path: Path) -> None:
    changed = outgoing(source, unpacked=form == "gguf")
    if form == "gguf":
        out = export_gguf(source, tmp_path / "out", changed, ABOUT)
        assert out.suffix == ".gguf"
    else:
        export_directory(source, out := tmp_path / "out", changed, ABOUT)
    theirs, tokenizer = load(out)
    np.testing.assert_array_equal(np.array(theirs(IDS)), logits(source.path))
    text = "The dog's 1234 fires,\n\n  a\tcat! <|endoftext|>"
    assert tokenizer.encode(text) == TOKENIZER.encode(text)
    assert open_checkpoint(out).stop_ids == source.stop_ids


def adapter(source: Checkpoint, size: float) -> Adapter:
    keys = mx.random.split(mx.random.key(3), 2)
    c = source.config.n_embd
    change = LowRank(
        a=mx.random.normal((c, 4), key=keys[0]),
        b=mx.random.normal((4, c), key=keys[1]) * size,
        scale=2.0,
    )
    return Adapter(fine_tune_type="lora", modules={"model.layers.0.self_attn.q_proj": change})


def test_an_adapter_is_in_the_weights(source: Checkpoint, tmp_path: Path) -> None:
    change = adapter(source, 0.1)
    out = exported(source, tmp_path / "out", adapter=change)
    name = "model.layers.0.self_attn.q_proj"
    low_rank = change.modules[name]
    before, after = (load_model(w).weights()[f"{name}.weight"] for w in (source.path, out))
    expected = before + 2.0 * (low_rank.a @ low_rank.b).T
    np.testing.assert_allclose(np.array(after), np.array(expected), atol=1e-5)


@pytest.mark.parametrize("how", ["bfloat16", "4 bits"])
def test_it_is_said_when_a_small_change_is_lost(
    how: str, source: Checkpoint, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"dtype": mx.bfloat16}
    if how == "4 bits":
        asked = {"quantization": Quantization(bits=4, group_size=32)}
    with pytest.warns(MLXGPTWarning, match=r"\d+% of the weights that the adapter changes"):
        exported(source, tmp_path / "out", adapter=adapter(source, 1e-5), **asked)


def test_shards_hold_every_weight_once(source: Checkpoint, tmp_path: Path) -> None:
    tmp_path.joinpath("s").mkdir()
    written = write_weights(tmp_path / "s", source.weights(), shard_bytes=20_000)
    index = json.loads((tmp_path / "s" / "model.safetensors.index.json").read_text())
    files = sorted(p.name for p in (tmp_path / "s").glob("*.safetensors"))
    assert len(files) > 2
    assert files == sorted(set(index["weight_map"].values()))
    assert files[0] == f"model-00001-of-{len(files):05}.safetensors"
    assert index["metadata"]["total_size"] == written.nbytes
    (tmp_path / "s" / "config.json").write_bytes((source.path / "config.json").read_bytes())
    np.testing.assert_array_equal(logits(tmp_path / "s"), logits(source.path))


@pytest.mark.parametrize("taken", ["file", "folder", "itself", "link"])
def test_nothing_is_written_over(taken: str, source: Checkpoint, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if taken == "file":
        out.write_text("mine")
    elif taken == "folder":
        out.mkdir()
        (out / "mine").write_text("mine")
    elif taken == "link":
        out.symlink_to(tmp_path / "nowhere")
    else:
        out = source.path
    before = contents(source.path)
    with pytest.raises(CheckpointError, match="there already"):
        export_directory(source, out, outgoing(source), ABOUT)
    with pytest.raises(CheckpointError, match="there already"):
        export_gguf(source, out, outgoing(source, unpacked=True), ABOUT)
    assert contents(source.path) == before


def test_numbers_that_float16_lacks_are_named(tmp_path: Path, random_gpt: Make) -> None:
    model = random_gpt(vocab_size=TOKENIZER.vocab_size)
    name = "model.layers.1.mlp.up_proj.weight"
    model.set_weights({name: model.weights()[name] * 1e6})
    save_model(tmp_path / "m", model, TOKENIZER)
    source = open_checkpoint(tmp_path / "m")
    with pytest.raises(CheckpointError, match=rf"{name}.*bfloat16"):
        export_directory(source, tmp_path / "out", outgoing(source, dtype=mx.float16), ABOUT)
    assert not (tmp_path / "out").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_save_model_refuses_what_it_would_write_wrongly(source: Checkpoint, tmp_path: Path) -> None:
    packed = load_model(source)
    assert isinstance(packed, GPT)
    quantize_modules(packed, packable(source.config, Quantization(bits=4, group_size=32)))
    with_adapter = load_model(source)
    attach(with_adapter, adapter(source, 0.1))
    for model in (packed, with_adapter):
        with pytest.raises(CheckpointError, match="mlxgpt export"):
            save_model(tmp_path / "out", model, TOKENIZER)
        assert not (tmp_path / "out").exists()
