"""An adapter that is attached computes what it should, once, and only where it fits."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from random_adapters import (
    ALL,
    IDS,
    QUERIES,
    TOLERANCE,
    difference,
    noise,
    paths,
    plainly,
    random_adapter,
    random_change,
)

from mlxgpt.checkpoint import (
    Adapter,
    attach,
    load,
    load_model,
    read_adapter,
    save_model,
    write_adapter,
)
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import train_char

Maker = Callable[..., GPT]
WIDE = {"n_embd": 64, "n_head": 4, "n_kv_head": 2, "n_layer": 3}


def refused(model: GPT, adapter: Adapter) -> str:
    before = {name: np.array(w) for name, w in model.weights().items()}
    with pytest.raises(CheckpointError) as caught:
        attach(model, adapter)
    after = model.weights()
    assert list(after) == list(before)
    assert all(np.array_equal(np.array(after[name]), w) for name, w in before.items())
    assert "\n" not in str(caught.value)
    return str(caught.value)


CHOICES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "queries of the last layer": ({}, paths([1], QUERIES)),
    "all of all": ({"n_kv_head": 1, "qkv_bias": True, "mlp_bias": True}, paths([0, 1], ALL)),
    "head": ({"tie_embeddings": False}, ["lm_head", *paths([0], QUERIES)]),
    "embedding and head": ({"tie_embeddings": False}, ["lm_head", "model.embed_tokens"]),
    "tied embedding": ({}, ["model.embed_tokens", *paths([1], QUERIES)]),
}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize(("fields", "modules"), CHOICES.values(), ids=CHOICES)
def test_the_logits_are_those_of_the_changed_matrices(
    fields: dict[str, Any], modules: list[str], dora: bool, random_gpt: Maker
) -> None:
    model = random_gpt(**fields)
    adapter = random_adapter(model.config, modules, dora=dora)
    expected, base = plainly(model, adapter)(IDS), model(IDS)
    attach(model, adapter)
    assert difference(model(IDS), expected) < TOLERANCE
    assert difference(model(IDS), base) > 0.1
    parts = {"lora_a", "lora_b", "m"} if dora else {"lora_a", "lora_b"}
    trained = {name for name, _ in tree_flatten(model.trainable_parameters())}
    assert trained == {f"{path}.{part}" for path in modules for part in parts}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize("bits", [4, 3, 8])
def test_a_quantized_base_stays_quantized(dora: bool, bits: int, random_gpt: Maker) -> None:
    model = random_gpt(**WIDE)
    how = Quantization(bits=bits, group_size=32)
    modules = ["model.embed_tokens", *paths([0, 2], ALL)]
    plain = random_gpt(**WIDE)
    for path in modules:
        name = f"{path}.weight"
        w = model.weights()[name]
        plain.set_weights({name: how.dequantize(how.quantize(w), mx.float32)})
    quantize_modules(model, dict.fromkeys(modules, how))
    adapter = random_adapter(model.config, modules, dora=dora)
    held = model.weights()
    attach(model, adapter)
    assert difference(model(IDS), plainly(plain, adapter)(IDS)) < TOLERANCE
    left = {n.replace(".linear.", ".").replace(".embedding.", "."): w
            for n, w in model.weights().items()}  # fmt: skip
    assert all(mx.array_equal(left[name], w) for name, w in held.items())


def test_whole_weights_take_the_place_of_those_of_the_base(random_gpt: Maker) -> None:
    sizes = WIDE | {"qkv_bias": True}
    model, other, quantized = random_gpt(**sizes), random_gpt(seed=1, **sizes), random_gpt(**sizes)
    new = {n: w for n, w in other.weights().items() if "layers.2" in n and "k_proj.b" not in n}
    adapter = Adapter(fine_tune_type="full", weights=new)
    expected = plainly(model, adapter)(IDS)
    attach(model, adapter)
    assert difference(model(IDS), expected) == 0
    # also where they were quantized
    how = dict.fromkeys(paths([2], ALL), Quantization(bits=4, group_size=32))
    quantize_modules(quantized, how)
    assert difference(quantized(IDS), expected) > 0.1
    attach(quantized, adapter)
    assert difference(quantized(IDS), expected) == 0


def test_a_second_adapter_is_refused(random_gpt: Maker) -> None:
    model = random_gpt()
    attach(model, random_adapter(model.config, paths([0], QUERIES)))
    assert "already" in refused(model, random_adapter(model.config, paths([1], QUERIES)))


def test_what_does_not_fit_is_named(random_gpt: Maker) -> None:
    model = random_gpt()
    config = model.config
    good = random_adapter(config, paths([0, 1], QUERIES))
    path = "model.layers.1.self_attn.q_proj"

    def changed(**parts: Any) -> Adapter:
        change = replace(good.modules[path], **parts)
        return replace(good, modules={**good.modules, path: change})

    change = good.modules[path]
    for adapter, words in (
        (changed(a=change.a[:-1]), ["'a'", path, "[31, 4]", "[32, 4]"]),
        (changed(b=change.b[:, 1:]), ["'b'", path, "[4, 31]", "[4, 32]"]),
        (changed(m=mx.ones(31)), ["'m'", path, "[31]"]),
    ):
        assert all(word in refused(model, adapter) for word in words)
    deeper = replace(good, modules={**good.modules, "model.layers.2.self_attn.q_proj": change})
    assert "2 layers: 'model.layers.2.self_attn.q_proj'" in refused(model, deeper)
    for other in ("model.layers.0.input_layernorm", "model.layers.0.self_attn", "lm_head"):
        assert repr(other) in refused(model, replace(good, modules={other: change}))
    assert "no head of its own" in refused(model, replace(good, modules={"lm_head": change}))
    for name, w in (("model.norm.weight", mx.ones(31)), ("model.norm.bias", mx.ones(32))):
        adapter = Adapter(fine_tune_type="full", weights={name: w})
        assert repr(name) in refused(model, adapter)


def test_half_precision_is_attached_in_float32(random_gpt: Maker) -> None:
    model = random_gpt()
    whole = random_adapter(model.config, paths([0], QUERIES))
    half = {
        p: replace(c, a=c.a.astype(mx.bfloat16), b=c.b.astype(mx.bfloat16))
        for p, c in whole.modules.items()
    }
    attach(model, replace(whole, modules=half))
    for path, change in half.items():
        a = model.weights()[f"{path}.lora_a"]
        assert a.dtype == mx.float32
        assert mx.array_equal(a, change.a.astype(mx.float32))


PROGRAM = """
import sys
import mlxgpt
import mlx.core as mx
model, _ = mlxgpt.load(sys.argv[1], adapter=sys.argv[2])
mx.save_safetensors(sys.argv[3], {"logits": model(mx.load(sys.argv[4])["ids"])})
"""


@pytest.mark.slow
@pytest.mark.parametrize("form", ["mlx-lm", "peft"])
def test_a_new_process_gives_the_same_bits_without_being_told_rank_or_scale(
    form: Any, tmp_path: Path, random_gpt: Maker
) -> None:
    tokenizer = train_char(["the cat sat on the mat; 3 + 4 = 7\n"])
    model = random_gpt(vocab_size=tokenizer.vocab_size)
    save_model(tmp_path / "base", model, tokenizer)
    rank, alpha = 4, 37
    adapter = random_adapter(model.config, paths([0, 1], QUERIES), rank, alpha / rank)
    attach(model, adapter)
    write_adapter(tmp_path / "adapter", adapter, form)
    files = [str(tmp_path / name) for name in ("base", "adapter", "out.safetensors")]
    ids = str(tmp_path / "ids.safetensors")
    mx.save_safetensors(ids, {"ids": IDS})
    subprocess.run([sys.executable, "-c", PROGRAM, *files, ids], check=True, timeout=120)
    logits = mx.load(files[2])["logits"]
    assert mx.array_equal(logits, model(IDS))
    assert difference(load_model(tmp_path / "base")(IDS), logits) > 0.1


def test_load_takes_a_folder_or_what_was_read(tmp_path: Path, random_gpt: Maker) -> None:
    tokenizer = train_char(["the cat"])
    model = random_gpt(vocab_size=tokenizer.vocab_size)
    save_model(tmp_path / "base", model, tokenizer)
    adapter = random_adapter(model.config, paths([0], QUERIES))
    write_adapter(tmp_path / "adapter", adapter, "mlx-lm", base="some/base")
    attach(model, adapter)
    read = read_adapter(tmp_path / "adapter")
    assert read.base == "some/base"
    assert read.rank == 4
    for given in (tmp_path / "adapter", str(tmp_path / "adapter"), read):
        assert mx.array_equal(load(tmp_path / "base", given)[0](IDS), model(IDS))


def test_an_embedding_that_leaves_a_tied_head_alone_is_refused(random_gpt: Maker) -> None:
    model = random_gpt()
    change = random_change(model.config, "model.embed_tokens")
    adapter = Adapter(
        fine_tune_type="lora",
        modules={"model.embed_tokens": change},
        head_follows_embedding=False,
    )
    assert "one matrix" in refused(model, adapter)
    whole = {"model.embed_tokens.weight": noise("w", 61, 32)}
    adapter = replace(adapter, modules={}, weights=whole)
    assert "one matrix" in refused(model, adapter)
    attach(random_gpt(tie_embeddings=False), adapter)
