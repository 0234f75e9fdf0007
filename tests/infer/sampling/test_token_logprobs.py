import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.infer.sampling import PendingLogprobs, TokenLogprobs


def exact(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


@given(
    st.integers(1, 70),
    st.lists(st.none() | st.integers(0, 80), min_size=1, max_size=5),
    st.integers(0, 999),
)
def test_they_are_those_of_the_softmax(size: int, counts: list[int | None], seed: int) -> None:
    """For the rows that ask; many are equal, and of those the lower ids come first."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    logits = rng.integers(-4, 4, (len(counts), size)).astype(np.float32)
    chosen = rng.integers(0, size, len(counts))
    got = PendingLogprobs(mx.array(logits), mx.array(chosen), counts).read()
    expected = exact(logits)
    for row, count in enumerate(counts):
        one = got[row]
        if count is None:
            assert one is None
            continue
        assert isinstance(one, TokenLogprobs)
        assert one.logprob == pytest.approx(expected[row, chosen[row]], abs=1e-5)
        order = np.argsort(-logits[row], kind="stable")[:count]
        assert [i for i, _ in one.top] == order.tolist()
        np.testing.assert_allclose([p for _, p in one.top], expected[row, order], atol=1e-5)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_over_a_large_vocabulary(dtype: mx.Dtype) -> None:
    size = 50_257
    rng = np.random.Generator(np.random.Philox(key=1))
    logits = mx.array(rng.standard_normal((3, size)).astype(np.float32)).astype(dtype)
    values = np.array(logits.astype(mx.float32))
    got = PendingLogprobs(logits, mx.array([0, 5, size - 1]), [0, None, 20]).read()
    assert got[1] is None
    first, last = got[0], got[2]
    assert first is not None
    assert last is not None
    assert first.top == ()
    assert first.logprob == pytest.approx(exact(values)[0, 0], abs=1e-5)
    assert [i for i, _ in last.top] == np.argsort(-values[2], kind="stable")[:20].tolist()


def test_nothing_is_computed_for_nobody() -> None:
    pending = PendingLogprobs(mx.zeros((2, 4)), mx.array([0, 1]), [None, None])
    assert pending.arrays == []
    assert pending.read() == [None, None]
    assert len(PendingLogprobs(mx.zeros((2, 4)), mx.array([0, 1]), [0, None]).arrays) == 1


def test_a_token_of_no_probability() -> None:
    pending = PendingLogprobs(mx.array([[0.0, -math.inf, 0.0]]), mx.array([1]), [3])
    (one,) = pending.read()
    assert one is not None
    assert one.logprob == -math.inf
    assert [i for i, _ in one.top] == [0, 2, 1]
