from collections.abc import Callable, Iterator
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.infer import KVCache, kv_cache
from mlxgpt.model import GPT, CausalAttend, kv_bytes_per_token

Make = Callable[..., GPT]


def ids_of(length: int, batch: int = 1) -> mx.array:
    generator = np.random.Generator(np.random.Philox(key=length))
    return mx.array(generator.integers(0, 61, (batch, length)))


def in_pieces(model: GPT, ids: mx.array, edges: list[int], cache: KVCache) -> mx.array:
    """Feed ids (B, T) piece by piece, cut at `edges`; return all logits."""
    cuts = [0, *edges, ids.shape[1]]
    return mx.concatenate([model(ids[:, a:b], cache) for a, b in pairwise(cuts)], axis=1)


def close(a: mx.array, b: mx.array) -> bool:
    return mx.allclose(a, b, atol=1e-4, rtol=0).item()  # type: ignore[return-value]


@pytest.fixture(params=[1, 3, 256])
def growth(request: pytest.FixtureRequest) -> Iterator[int]:
    """Buffers that grow and slide at every token, now and then, or never in these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_GROWTH", request.param)
        yield request.param


@pytest.mark.parametrize("window", [None, 1, 2, 4, 9, 100])
def test_a_prompt_at_once_in_pieces_or_one_by_one_is_the_same(
    window: int | None, growth: int, random_gpt: Make
) -> None:
    model = random_gpt()
    for length in range(1, 10):
        ids = ids_of(length, batch=2)
        expected = model(ids, CausalAttend(window))
        ways = [[], list(range(1, length)), [4], [length - 1], [1, 2]]
        for edges in ways:
            if all(0 < e < length for e in edges):
                cache = KVCache(2, window)
                assert close(in_pieces(model, ids, edges, cache), expected), (length, edges)
                assert cache.length == length
                assert cache.offset(1) == length


@given(
    st.integers(1, 60).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set()))
    ),
    st.none() | st.integers(1, 30),
    st.integers(1, 9),
    st.sampled_from([1, 2, 4]),
)
def test_any_cut_gives_the_same(
    random_gpt: Make, cut: tuple[int, set[int]], window: int | None, growth: int, kv_heads: int
) -> None:
    length, edges = cut
    model = random_gpt(n_kv_head=kv_heads)
    ids = ids_of(length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_GROWTH", growth)
        got = in_pieces(model, ids, sorted(edges), KVCache(2, window))
    assert close(got, model(ids, CausalAttend(window)))


def test_a_long_prompt_and_then_tokens(random_gpt: Make) -> None:
    model = random_gpt(n_embd=64)
    ids = ids_of(140)
    expected = model(ids, CausalAttend(50))
    assert close(in_pieces(model, ids, [70, 130, *range(131, 140)], KVCache(2, 50)), expected)


def test_a_change_of_a_token_changes_nothing_before_it(random_gpt: Make) -> None:
    model, ids = random_gpt(), ids_of(9)
    other = mx.concatenate([ids[:, :6], (ids[:, 6:] + 1) % 61], axis=1)
    one, two = (in_pieces(model, i, [4], KVCache(2)) for i in (ids, other))
    assert mx.array_equal(one[:, :6], two[:, :6])
    assert not mx.allclose(one[:, 6:], two[:, 6:], atol=1e-3)


@pytest.mark.parametrize("poison", [1e4, float("nan")])
def test_what_is_no_longer_or_not_yet_in_use_is_never_read(
    poison: float, growth: int, random_gpt: Make
) -> None:
    model, ids, window = random_gpt(), ids_of(40), 5
    expected = model(ids, CausalAttend(window))
    cache = KVCache(2, window)
    logits = []
    for t in range(40):
        logits.append(model(ids[:, t : t + 1], cache))
        for layer in cache._layers:
            for buffer in (layer.keys, layer.values):
                assert buffer is not None
                buffer[:, :, : max(0, layer.end - (window - 1))] = poison
                buffer[:, :, layer.end :] = poison
    assert close(mx.concatenate(logits, axis=1), expected)


def test_memory_is_bounded_by_window_and_piece(random_gpt: Make) -> None:
    model = random_gpt(n_layer=1, n_embd=8, n_head=2, n_kv_head=1, vocab_size=61)
    window, longest = 40, 9
    cache = KVCache(1, window)
    bound = (window + 512 + longest) * kv_bytes_per_token(model.config)
    ids = ids_of(longest)
    most = fed = 0
    while fed < 2000:
        piece = 1 + fed % longest
        logits = model(ids[:, :piece], cache)
        fed += piece
        most = max(most, cache.nbytes)
        mx.eval(logits)
    assert cache.length == fed
    assert most <= bound
    without = KVCache(1)
    mx.eval(model(ids, without))
    assert without.nbytes > 0


def test_an_empty_cache_holds_nothing() -> None:
    cache = KVCache(3)
    assert (cache.length, cache.nbytes, cache.offset(2)) == (0, 0, 0)
