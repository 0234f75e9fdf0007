"""The hand-written kernels of a CPU against MLX's own, forward and backward."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxgpt.model import Causal, kernels

pytestmark = pytest.mark.skipif(
    mx.default_device().type != mx.DeviceType.cpu, reason="on a GPU MLX's kernels are used"
)


@pytest.fixture(autouse=True)
def by_hand_at_any_size(monkeypatch):
    monkeypatch.setattr(kernels, "_WORTH_IT", 0)
    monkeypatch.setattr(kernels, "_BLOCK", 4)


def normal(shape, seed, scale=1.0):
    return scale * mx.random.normal(shape, key=mx.random.key(seed))


def assert_same(mine, plain, *arrays, atol=2e-5):
    """Values, and gradients of a random projection of them."""
    a, b = mine(*arrays), plain(*arrays)
    assert a.shape == b.shape
    assert a.dtype == b.dtype
    np.testing.assert_allclose(np.array(a), np.array(b), atol=atol, rtol=2e-5)
    weight = normal(a.shape, 99)
    every = tuple(range(len(arrays)))
    theirs = mx.grad(lambda *x: (plain(*x) * weight).sum(), argnums=every)(*arrays)
    ours = mx.grad(lambda *x: (mine(*x) * weight).sum(), argnums=every)(*arrays)
    for x, y in zip(
        (ours,) if isinstance(ours, mx.array) else ours,
        (theirs,) if isinstance(theirs, mx.array) else theirs,
        strict=True,
    ):
        np.testing.assert_allclose(np.array(x), np.array(y), atol=5 * atol, rtol=1e-4)


def test_exp_is_exact_enough_from_zero_down_to_underflow():
    x = mx.array(np.linspace(-59.9, 0, 20001), dtype=mx.float32)
    expected = np.exp(np.array(x, dtype=np.float64))
    mine = np.array(kernels._polynomial_exp(x), dtype=np.float64)
    assert np.abs(mine - expected).max() < 1.5e-6
    assert (np.abs(mine - expected) / expected)[expected > 1e-3].max() < 4e-6
    assert float(kernels._polynomial_exp(mx.array([-60.5])).item()) < 1e-26
    gone = mx.array([-100.0, -1e30, -float("inf")])
    assert (np.array(kernels._polynomial_exp(gone)) == 0).all()


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_swiglu(scale):
    assert_same(
        kernels.swiglu,
        kernels.plain_swiglu,
        normal((3, 50), 1, scale),
        normal((3, 50), 2),
        atol=2e-5 * max(1, scale),
    )


def test_swiglu_of_extreme_gates_is_finite():
    gate, up = mx.array([-1e4, -100.0, 0.0, 100.0, 1e4]), mx.ones((5,))
    np.testing.assert_allclose(np.array(kernels.swiglu(gate, up)), [0, 0, 0, 100, 1e4])
    slopes = mx.grad(lambda g: kernels.swiglu(g, up).sum())(gate)
    np.testing.assert_allclose(np.array(slopes), [0, 0, 0.5, 1, 1], atol=1e-6)


@settings(max_examples=40)
@given(
    b=st.integers(1, 2),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    queries=st.integers(2, 11),
    older=st.integers(0, 9),
    window=st.none() | st.integers(1, 20),
    packed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_attention_over_shapes_and_masks(b, kv_heads, group, queries, older, window, packed, seed):
    keys, heads = queries + older, kv_heads * group
    q = normal((b, heads, queries, 6), seed, 2.0)
    k, v = normal((b, kv_heads, keys, 6), seed + 1), normal((b, kv_heads, keys, 6), seed + 2)
    segments = np.sort(np.random.default_rng(seed).integers(0, 3, (b, keys)), axis=1)
    causal = Causal(window, mx.array(segments) if packed else None)
    for block in (4, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernels, "_BLOCK", block)
            assert_same(
                lambda *a: kernels.attention(*a, causal),
                lambda *a: kernels.plain_attention(*a, causal),
                q,
                k,
                v,
            )


def test_a_later_key_changes_no_bit_of_an_earlier_query():
    q, k, v = (normal((1, 2, 12, 8), i) for i in range(3))
    before = np.array(kernels.attention(q, k, v, Causal()))
    k[:, :, 7], v[:, :, 7] = 1e3, 1e3
    after = np.array(kernels.attention(q, k, v, Causal()))
    assert (before[:, :, :7] == after[:, :, :7]).all()
    assert (before[:, :, 7:] != after[:, :, 7:]).any()


@pytest.mark.parametrize("scale", [0.01, 3.0, 100.0])
def test_cross_entropy(scale):
    targets = mx.random.randint(0, 33, (2, 9), key=mx.random.key(5))
    assert_same(
        lambda x: kernels.cross_entropy(x, targets),
        lambda x: kernels.plain_cross_entropy(x, targets),
        normal((2, 9, 33), 1, scale),
        atol=2e-5 * max(1, scale),
    )


def test_half_precision_goes_to_mlx():
    x = normal((4, 8), 1).astype(mx.bfloat16)
    assert kernels.swiglu(x, x).dtype == mx.bfloat16
    assert mx.array_equal(kernels.swiglu(x, x), kernels.plain_swiglu(x, x))
