import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt import seeding
from mlxgpt.model import Causal, CausalAttend, SegmentAttend


def arrays(
    b: int, h: int, kv: int, t: int, d: int, seed: int = 0
) -> tuple[mx.array, mx.array, mx.array]:
    def make(name: str, heads: int) -> mx.array:
        return mx.random.normal((b, heads, t, d), key=seeding.key(seed, name))

    return make("q", h), make("k", kv), make("v", kv)


def reference(q: mx.array, k: mx.array, v: mx.array, seen: np.ndarray) -> np.ndarray:
    """Attention in float64 where `seen` (B, T, T) allows it."""
    qs, ks, vs = (np.array(a, dtype=np.float64) for a in (q, k, v))
    group = qs.shape[1] // ks.shape[1]
    ks, vs = np.repeat(ks, group, axis=1), np.repeat(vs, group, axis=1)
    scores = qs @ ks.swapaxes(-1, -2) / np.sqrt(qs.shape[-1])
    scores = np.where(seen[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ vs


@pytest.mark.parametrize("length", [1, 2, 9, 130])
@pytest.mark.parametrize("window", [None, 1, 2, 5, 9, 200])
def test_a_token_sees_itself_and_the_window_before_it(length: int, window: int | None) -> None:
    q, k, v = arrays(2, 4, 2, length, 16)
    i = np.arange(length)
    seen = (i[None] <= i[:, None]) & (i[None] > i[:, None] - (window or length))
    expected = reference(q, k, v, np.broadcast_to(seen, (2, length, length)))
    np.testing.assert_allclose(
        np.array(CausalAttend(window)(0, q, k, v, None)), expected, atol=2e-5
    )
    assert CausalAttend(window).offset(3) == 0


@given(
    st.integers(1, 12),
    st.integers(0, 12),
    st.none() | st.integers(1, 14),
    st.none() | st.lists(st.integers(0, 3), min_size=24, max_size=24),
    st.integers(1, 13),
)
def test_queries_stand_at_the_end_of_the_keys(
    queries: int, more: int, window: int | None, segments: list[int] | None, size: int
) -> None:
    keys = queries + more
    numbers = sorted(segments[:keys]) if segments else [0] * keys
    causal = Causal(window, mx.array([numbers]) if segments else None)
    expected = np.array(
        [
            [
                s <= t and (window is None or s > t - window) and numbers[s] == numbers[t]
                for s in range(keys)
            ]
            for t in range(more, keys)
        ]
    )
    mask, written = causal.mask(queries, keys), causal.array(queries, keys)
    if mask is None:
        assert written is None
        assert expected.all()
    else:
        assert written is not None
        assert np.array_equal(np.array(written).reshape(queries, keys), expected)
        if isinstance(mask, str):
            assert (mask, window is None or window >= keys, segments) == ("causal", True, None)
        else:
            assert mx.array_equal(mask, written)
    found, done = np.zeros_like(expected), 0
    for some, seen, block in causal.blocks(queries, keys, size):
        assert some.start == done
        assert 1 <= some.stop - some.start <= size
        done = some.stop
        found[some, seen] = np.array(block).reshape(some.stop - some.start, -1)
    assert done == queries
    assert np.array_equal(found, expected)


def test_no_key_before_the_window_is_touched() -> None:
    assert [seen for _, seen, _ in Causal(100).blocks(256, 300, 64)] == [
        slice(0, 108),
        slice(9, 172),
        slice(73, 236),
        slice(137, 300),
    ]


@pytest.mark.parametrize("length", [1, 3, 300])
@pytest.mark.parametrize("attend", [CausalAttend(), SegmentAttend(mx.ones((1, 300), mx.int32))])
def test_neighbouring_query_heads_share_a_key_head(
    length: int, attend: CausalAttend | SegmentAttend
) -> None:
    if isinstance(attend, SegmentAttend):
        attend = SegmentAttend(mx.ones((1, length), mx.int32))
    q, k, _ = arrays(1, 4, 2, length, 16)
    v = mx.broadcast_to(mx.array([1.0, 2.0])[None, :, None, None], (1, 2, length, 16))
    out = np.array(attend(0, q, k, v, None))
    for head, kv_head in enumerate([0, 0, 1, 1]):
        np.testing.assert_allclose(out[0, head], kv_head + 1, rtol=1e-5)


def test_positions_count_from_the_start_of_a_segment() -> None:
    attend = SegmentAttend(mx.array([[1, 1, 1, 2, 2, 3, 3, 3, 3], [4, 4, 4, 4, 4, 4, 4, 0, 0]]))
    assert np.array(attend.offset(0)).tolist() == [
        [0, 1, 2, 0, 1, 0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5, 6, 0, 1],
    ]


@pytest.mark.parametrize("repeat", [1, 12])
@pytest.mark.parametrize("known", [True, False])
def test_segments_do_not_see_each_other(repeat: int, known: bool) -> None:
    segments = np.repeat(np.array([[1, 1, 1, 2, 2, 3, 3, 3, 0], [5] * 9]), repeat, axis=1)
    length = segments.shape[1]
    q, k, v = arrays(2, 4, 2, length, 24)
    i = np.arange(length)
    seen = (segments[:, :, None] == segments[:, None, :]) & (i[None, :] <= i[:, None])
    longest = 9 * repeat if known else None
    out = np.array(SegmentAttend(mx.array(segments), longest)(0, q, k, v, None))
    np.testing.assert_allclose(out, reference(q, k, v, seen), atol=2e-5)
    assert np.isfinite(out).all()
