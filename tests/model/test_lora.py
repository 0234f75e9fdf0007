"""Low-rank layers compute what the whole changed matrix would, on plain and on quantized bases."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from mlxgpt import seeding
from mlxgpt.model.lora import adapted, row_factors, whole_matrix

INPUTS, OUTPUTS, RANK, SCALE = 64, 96, 3, 1.7


def noise(purpose: str, *shape: int) -> mx.array:
    return mx.random.normal(shape, key=seeding.key(0, f"test/{purpose}"))


def linear(bias: bool) -> nn.Linear:
    module = nn.Linear(INPUTS, OUTPUTS, bias=bias)
    module.weight = noise("w", OUTPUTS, INPUTS) / 8
    if bias:
        module.bias = noise("bias", OUTPUTS)
    return module


def embedding() -> nn.Embedding:
    module = nn.Embedding(OUTPUTS, INPUTS)
    module.weight = noise("w", OUTPUTS, INPUTS) / 8
    return module


BASES: dict[str, Any] = {
    "linear": lambda: linear(False),
    "linear with a bias": lambda: linear(True),
    "4 bits": lambda: linear(False).to_quantized(32, 4),
    "3 bits, with a bias": lambda: linear(True).to_quantized(64, 3),
    "mxfp4": lambda: linear(False).to_quantized(32, 4, mode="mxfp4"),
    "embedding": embedding,
    "embedding of 4 bits": lambda: embedding().to_quantized(32, 4),
}
METHODS = pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])


def changes(base: nn.Module, dora: bool) -> dict[str, Any]:
    """Random parts for a base, and lengths that differ from row to row."""
    first, last = (OUTPUTS, INPUTS) if is_embedding(base) else (INPUTS, OUTPUTS)
    parts: dict[str, Any] = {
        "lora_a": noise("a", first, RANK) / 4,
        "lora_b": noise("b", RANK, last) / 4,
        "scale": SCALE,
    }
    return parts | ({"m": 1 + mx.abs(noise("m", OUTPUTS))} if dora else {})


def is_embedding(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding | nn.QuantizedEmbedding)


def whole(base: nn.Module, parts: dict[str, Any]) -> np.ndarray:
    """The plain twin: the changed matrix in NumPy, (rows, columns)."""
    product = np.array(parts["lora_a"], np.float64) @ np.array(parts["lora_b"], np.float64)
    change = parts["scale"] * (product if is_embedding(base) else product.T)
    w = np.array(whole_matrix(base).astype(mx.float32), np.float64) + change
    if "m" in parts:
        w = np.array(parts["m"])[:, None] * w / np.linalg.norm(w, axis=1, keepdims=True)
    return w


@METHODS
@pytest.mark.parametrize("make", BASES.values(), ids=BASES)
def test_it_computes_with_the_changed_matrix(make: Any, dora: bool) -> None:
    base = make()
    parts = changes(base, dora)
    w, x = whole(base, parts), noise("x", 2, 5, INPUTS)
    module = adapted(base, **parts)
    if is_embedding(base):
        ids = mx.array([[0, 3, OUTPUTS - 1]])
        assert np.abs(np.array(module(ids)) - w[np.array(ids)]).max() < 1e-4
        out = module.as_linear(x)
    else:
        out = module(x)
    bias = np.array(base.bias) if "bias" in base else 0.0
    expected = np.array(x) @ w.T + bias
    assert expected.std() > 0.5
    assert np.abs(np.array(out) - expected).max() < 1e-4


@METHODS
@pytest.mark.parametrize("make", BASES.values(), ids=BASES)
def test_only_its_own_parts_are_trained(make: Any, dora: bool) -> None:
    base = make()
    held = {name: mx.array(w) for name, w in tree_flatten(base.parameters())}
    parts = changes(base, dora)
    module = adapted(base, **parts)
    names = {name for name, _ in tree_flatten(module.trainable_parameters())}
    assert names == set(parts) - {"scale"}
    under = "embedding" if is_embedding(base) else "linear"
    everything = dict(tree_flatten(module.parameters()))
    assert set(everything) == names | {f"{under}.{name}" for name in held}
    for name, w in held.items():
        assert mx.array_equal(everything[f"{under}.{name}"], w)


def test_the_gradient_of_dora_takes_the_length_for_a_constant() -> None:
    base, x, target = linear(True), noise("x", 7, INPUTS), noise("t", 7, OUTPUTS)
    module = adapted(base, **changes(base, True))

    def plain(a: mx.array, b: mx.array, m: mx.array) -> mx.array:
        w = base.weight + SCALE * (a @ b).T
        length = mx.stop_gradient(mx.linalg.norm(w, axis=1))
        return ((x @ (w * (m / length)[:, None]).T + base.bias - target) ** 2).mean()

    def fast(a: mx.array, b: mx.array, m: mx.array) -> mx.array:
        module.lora_a, module.lora_b, module.m = a, b, m
        return ((module(x) - target) ** 2).mean()

    parts = (module.lora_a, module.lora_b, module.m)
    expected = mx.grad(plain, (0, 1, 2))(*parts)
    for got, want in zip(mx.grad(fast, (0, 1, 2))(*parts), expected, strict=True):
        assert mx.abs(want).max().item() > 1e-3
        assert mx.allclose(got, want, rtol=1e-4, atol=1e-6)


@METHODS
def test_half_precision_comes_out_as_it_went_in(dora: bool) -> None:
    for base in (linear(True), embedding()):
        base.set_dtype(mx.bfloat16)
        module: Any = adapted(base, **changes(base, dora))
        ids = mx.array([1])
        out = module.as_linear(module(ids)) if is_embedding(base) else module(base.weight[:2])
        assert out.dtype == mx.bfloat16


@given(st.integers(0, 2**32 - 1), st.floats(0, 4), st.sampled_from([1, 2, 8]))
def test_without_b_and_with_its_own_lengths_it_is_the_base(
    seed: int, scale: float, rank: int
) -> None:
    def draw(purpose: str, *shape: int) -> mx.array:
        return mx.random.normal(shape, key=seeding.key(seed, purpose))

    base = nn.Linear(8, 6)
    base.weight, x = draw("w", 6, 8), draw("x", 3, 8)
    parts = {"lora_a": draw("a", 8, rank), "lora_b": mx.zeros((rank, 6)), "scale": scale}
    expected = base(x)
    assert mx.array_equal(adapted(base, **parts)(x), expected)
    lengths = mx.linalg.norm(base.weight, axis=1)
    assert mx.allclose(adapted(base, **parts, m=lengths)(x), expected, rtol=1e-5, atol=1e-5)


def test_a_row_of_zeros_stays_zero() -> None:
    factors = row_factors(mx.array([2.0, 0.0, 6.0]), mx.array([1.0, 0.0, 0.0]))
    assert factors.tolist() == [2, 0, 0]
    base = linear(False)
    base.weight[4] = 0
    parts = changes(base, True) | {"lora_b": mx.zeros((RANK, OUTPUTS))}
    out = adapted(base, **parts)(noise("x", 2, INPUTS))
    assert mx.isfinite(out).all()
    assert (out[:, 4] == 0).all()
