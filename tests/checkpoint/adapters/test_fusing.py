"""Fused weights: what base and adapter amount to, and what a low precision loses of it."""

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_adapters import ALL, IDS, QUERIES, difference, noise, paths, plainly, random_adapter

from mlxgpt.checkpoint import Adapter, attach, fused
from mlxgpt.checkpoint.adapters import LowRank, Rounding
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT

Maker = Callable[..., GPT]
CHOICES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "all": ({"n_kv_head": 1, "qkv_bias": True}, paths([0, 1], ALL)),
    "head": ({"tie_embeddings": False}, ["lm_head", "model.embed_tokens"]),
    "tied": ({}, ["model.embed_tokens", *paths([1], QUERIES)]),
}


@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
@pytest.mark.parametrize(("fields", "modules"), CHOICES.values(), ids=CHOICES)
def test_fused_is_what_attached_computes_and_not_the_base(
    fields: dict[str, Any], modules: list[str], dora: bool, random_gpt: Maker
) -> None:
    model, fresh = random_gpt(**fields), random_gpt(**fields)
    adapter = random_adapter(model.config, modules, dora=dora)
    base = model(IDS)
    attach(model, adapter)
    weights = dict(fused(iter(fresh.weights().items()), adapter))
    assert list(weights) == list(fresh.weights())
    fresh.set_weights(weights)
    assert difference(fresh(IDS), model(IDS)) < 1e-3
    assert difference(fresh(IDS), base) > 0.1


def test_whole_weights_are_put_in(random_gpt: Maker) -> None:
    model, other = random_gpt(), random_gpt(seed=1)
    new = {n: w for n, w in other.weights().items() if "layers.1" in n}
    adapter = Adapter(fine_tune_type="full", weights=new)
    expected = plainly(model, adapter)(IDS)
    model.set_weights(dict(fused(iter(model.weights().items()), adapter)))
    assert difference(model(IDS), expected) == 0


def test_it_is_computed_in_float32_whatever_the_base_is_in(random_gpt: Maker) -> None:
    model = random_gpt()
    adapter = random_adapter(model.config, paths([1], QUERIES))
    half = {n: w.astype(mx.bfloat16) for n, w in model.weights().items()}
    result = dict(fused(iter(half.items()), adapter))
    model.set_weights({n: w.astype(mx.float32) for n, w in half.items()})
    exact = plainly(model, adapter).weights()
    for name, w in result.items():
        if name.removesuffix(".weight") in adapter.modules:
            assert w.dtype == mx.float32
            assert mx.allclose(w, exact[name], rtol=1e-6, atol=1e-6)
        else:
            assert w is half[name]


def test_it_takes_one_weight_at_a_time(random_gpt: Maker) -> None:
    model = random_gpt()
    adapter = random_adapter(model.config, paths([0, 1], ALL))
    asked: list[str] = []

    def source() -> Iterator[tuple[str, mx.array]]:
        for name, w in model.weights().items():
            asked.append(name)
            yield name, w

    for name, _ in fused(source(), adapter):
        assert asked[-1] == name


def test_parts_without_a_weight_are_named(random_gpt: Maker) -> None:
    model = random_gpt()
    path = "model.layers.1.mlp.up_proj"
    adapter = random_adapter(model.config, [path])
    weights = model.weights()
    weights.pop(f"{path}.weight")
    with pytest.raises(CheckpointError, match=path):
        list(fused(iter(weights.items()), adapter))


def ones(delta: float, dtype: mx.Dtype) -> tuple[dict[str, mx.array], Adapter]:
    """A matrix of ones, and an adapter that adds `delta` to each."""
    path = "model.layers.0.mlp.up_proj"
    change = LowRank(a=mx.ones((8, 2)), b=mx.ones((2, 6)), scale=delta / 2)
    weights = {f"{path}.weight": mx.ones((6, 8), dtype=dtype), "other": mx.ones(3, dtype=dtype)}
    return weights, Adapter(fine_tune_type="lora", modules={path: change})


@pytest.mark.parametrize(
    ("delta", "stored", "dtype", "fraction"),
    [
        (1e-3, mx.bfloat16, mx.bfloat16, 1),  # the next bfloat16 after 1 is 1.0078
        (1e-3, mx.bfloat16, None, 1),
        (1e-3, mx.bfloat16, mx.float32, 0),
        (1e-3, mx.float32, None, 0),
        (1e-3, mx.float32, mx.bfloat16, 1),
        (1e-3, mx.float16, mx.float16, 0),  # the next float16 is 1.00098
        (1e-2, mx.bfloat16, mx.bfloat16, 0),
        (0.0, mx.bfloat16, mx.bfloat16, 0),
    ],
)
def test_what_a_low_precision_swallows_is_counted(
    delta: float, stored: mx.Dtype, dtype: mx.Dtype | None, fraction: float
) -> None:
    weights, adapter = ones(delta, stored)
    asked: list[tuple[str, mx.Dtype]] = []

    def kept(name: str, weight: mx.array, before: mx.Dtype) -> mx.array:
        asked.append((name, before))
        assert weight.dtype == mx.float32
        return weight.astype(dtype or before)

    rounding = Rounding(None if dtype is None else kept)
    result = dict(fused(iter(weights.items()), adapter, rounding))
    name = "model.layers.0.mlp.up_proj.weight"
    assert set(asked) == (set() if dtype is None else {(name, stored)})
    assert mx.allclose(result[name], mx.array(1 + delta))
    assert rounding.changed == (48 if delta else 0)
    assert rounding.fraction == fraction
    # and the logits say the same: those of the base, where all was swallowed
    before, after = weights[name].astype(dtype or stored), result[name].astype(dtype or stored)
    x = noise("x", 8).astype(before.dtype)
    if delta:
        assert mx.array_equal(before @ x, after @ x) == bool(fraction)


@given(st.integers(0, 2**32 - 1), st.floats(1e-5, 1e-1))
def test_the_count_is_that_of_a_comparison_by_hand(seed: int, scale: float) -> None:
    key = mx.random.key(seed)
    w = mx.random.normal((6, 8), key=key).astype(mx.bfloat16)
    change = LowRank(a=mx.ones((8, 1)), b=mx.array([[1.0, 1, 1, 0, 0, 0]]), scale=scale)
    adapter = Adapter(fine_tune_type="lora", modules={"p": change})
    rounding = Rounding()
    result = dict(fused(iter([("p.weight", w)]), adapter, rounding))["p.weight"]
    after, before = result.astype(mx.bfloat16).tolist(), w.tolist()
    same = sum(after[i][j] == before[i][j] for i in range(3) for j in range(8))
    assert rounding.lost == same
    assert rounding.changed == 24
