"""A model's name by its weights: the same in any file, another one for another model."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from random_adapters import QUERIES, paths, random_adapter

from mlxgpt.checkpoint import (
    About,
    attach,
    export_directory,
    export_gguf,
    load_model,
    open_checkpoint,
    outgoing,
    read_adapter,
    save_model,
    write_adapter,
)
from mlxgpt.checkpoint.adapters.base_fingerprint import base_fingerprint
from mlxgpt.checkpoint.shards import write_weights
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import train_bpe

Maker = Callable[..., GPT]
TOKENIZER = train_bpe(["the cat sat on the mat; 3 + 4 = 7\n" * 20], 300)
SHAPE = {"vocab_size": TOKENIZER.vocab_size, "n_embd": 64}


@pytest.fixture
def model(random_gpt: Maker) -> GPT:
    return random_gpt(**SHAPE)


def test_it_is_the_same_in_any_file(model: GPT, tmp_path: Path) -> None:
    name = base_fingerprint(model)
    assert len(name) == 32
    save_model(tmp_path / "base", model, TOKENIZER)
    base = open_checkpoint(tmp_path / "base")
    about = About(title="a model")
    export_directory(base, tmp_path / "shards", outgoing(base), about)
    for file in (tmp_path / "shards").glob("model*"):
        file.unlink()
    write_weights(tmp_path / "shards", base.weights(), shard_bytes=60_000)
    assert len(list((tmp_path / "shards").glob("model-*"))) > 2
    export_gguf(base, tmp_path / "model.gguf", outgoing(base, unpacked=True), about)
    for place in ("base", "shards", "model.gguf"):
        checkpoint = open_checkpoint(tmp_path / place)
        assert base_fingerprint(checkpoint) == name, place
        network = load_model(checkpoint, as_stored=True)
        assert isinstance(network, GPT)
        assert base_fingerprint(network) == name, place


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_packed_weights_have_the_name_of_what_they_stand_for(
    model: GPT, tmp_path: Path, dtype: mx.Dtype
) -> None:
    """As stored, as a GPU computes with them, and unpacked, as a CPU does."""
    save_model(tmp_path / "base", model, TOKENIZER)
    base = open_checkpoint(tmp_path / "base")
    how = Quantization(bits=4, group_size=32)
    changed = outgoing(base, dtype=dtype, quantization=how)
    export_directory(base, tmp_path / "packed", changed, About(title="a model"))
    packed = open_checkpoint(tmp_path / "packed")
    names = {base_fingerprint(packed)}
    for as_stored in (True, False):
        network = load_model(packed, as_stored=as_stored)
        assert isinstance(network, GPT)
        names.add(base_fingerprint(network))
    assert len(names) == 1
    assert base_fingerprint(model) not in names


def test_any_weight_and_the_shape_change_it(model: GPT, random_gpt: Maker) -> None:
    seen = {base_fingerprint(model)}
    for name, weight in model.weights().items():
        model.set_weights({name: weight * 1.02})
        seen.add(base_fingerprint(model))
        model.set_weights({name: weight})
    assert len(seen) == 1 + len(model.weights())
    assert base_fingerprint(model) in seen
    seen.add(base_fingerprint(random_gpt(**SHAPE, n_head=2, n_kv_head=1)))
    assert len(seen) == 2 + len(model.weights())
    other = random_gpt(**SHAPE, n_head=2, n_kv_head=1, head_dim=16)
    assert base_fingerprint(other) not in seen


def test_the_sign_of_zero_is_nothing(model: GPT) -> None:
    weight = model.model.layers[0].mlp.up_proj.weight
    model.model.layers[0].mlp.up_proj.weight = mx.zeros_like(weight)
    name = base_fingerprint(model)
    model.model.layers[0].mlp.up_proj.weight = -mx.zeros_like(weight)
    assert base_fingerprint(model) == name


def test_an_adapter_on_another_base_is_told_and_works(
    model: GPT, random_gpt: Maker, tmp_path: Path
) -> None:
    save_model(tmp_path / "base", model, TOKENIZER)
    save_model(tmp_path / "other", random_gpt(seed=1, **SHAPE), TOKENIZER)
    adapter = replace(
        random_adapter(model.config, paths([0], QUERIES)),
        base="owner/base",
        base_fingerprint=base_fingerprint(model),
    )
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm")
    again = read_adapter(tmp_path / "adapter")
    assert again.base_fingerprint == adapter.base_fingerprint
    words = r"adapter was made for 'owner/base', whose weights differ from these"
    for place in ("base", "other"):
        checkpoint = open_checkpoint(tmp_path / place)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            network = load_model(checkpoint)
            attach(network, again)
            outgoing(checkpoint, adapter=again)
        assert [one.category for one in said] == ([MLXGPTWarning] * 2 if place == "other" else [])
        assert all(str(one.message).count("\n") == 0 for one in said)
    with pytest.warns(MLXGPTWarning, match=words):
        attach(load_model(tmp_path / "other"), again)


def test_one_that_says_nothing_is_taken_as_it_is(model: GPT, random_gpt: Maker) -> None:
    adapter = random_adapter(model.config, paths([0], QUERIES))
    assert adapter.base_fingerprint is None
    attach(random_gpt(seed=1, **SHAPE), adapter)  # a warning would be an error here


def test_a_packed_base_may_be_unpacked_for_use(random_gpt: Maker) -> None:
    """Training on 4 bits, then using the float original: a warning, no refusal."""
    model = random_gpt(**SHAPE)
    how: Any = dict.fromkeys(paths([0, 1], QUERIES), Quantization(bits=4, group_size=32))
    plain = random_gpt(**SHAPE)
    quantize_modules(model, how)
    adapter = random_adapter(model.config, paths([0], QUERIES))
    made = replace(adapter, base_fingerprint=base_fingerprint(model))
    with pytest.warns(MLXGPTWarning, match="the same model in another precision"):
        attach(plain, made)
