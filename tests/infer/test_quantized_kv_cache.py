"""A cache of few bits: plain attention over rounded keys and values, whatever the pieces."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import ConfigError
from mlxgpt.infer import KVCache, kv_cache, quantized_kv_cache
from mlxgpt.infer.quantized_kv_cache import QuantizedKVCache
from mlxgpt.model import GPT, Attend, CausalAttend, kv_bytes_per_token

Make = Callable[..., GPT]
WIDE = {"n_embd": 64, "n_head": 4, "n_kv_head": 2, "head_dim": 32}
NOTHING_UNPACKED, ALL_UNPACKED = 10**9, 0


class Rounded(CausalAttend):
    """Plain attention over what packing leaves of keys and values: the twin without a cache."""

    def __init__(self, window: int | None = None, bits: int = 8, group_size: int = 32) -> None:
        super().__init__(window)
        self.how = {"bits": bits, "group_size": group_size}

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        k, v = (mx.dequantize(*mx.quantize(x, **self.how), **self.how) for x in (k, v))
        return super().__call__(layer, q, k, v, window)


def ids_of(length: int, batch: int = 1) -> mx.array:
    generator = np.random.Generator(np.random.Philox(key=length))
    return mx.array(generator.integers(0, 61, (batch, length)))


def in_pieces(model: GPT, ids: mx.array, edges: list[int], cache: Attend) -> mx.array:
    """Feed ids (B, T) piece by piece, cut at `edges`; return all logits."""
    cuts = [0, *edges, ids.shape[1]]
    return mx.concatenate([model(ids[:, a:b], cache) for a, b in pairwise(cuts)], axis=1)


def cache_for(model: GPT, window: int | None = None, bits: int = 8) -> QuantizedKVCache:
    config = model.config
    return QuantizedKVCache(config.n_layer, window, head_dim=config.head_size, bits=bits)


def difference(a: mx.array, b: mx.array) -> float:
    """Largest difference, as a part of the largest number."""
    return (mx.abs(a - b).max() / mx.abs(b).max()).item()  # type: ignore[return-value]


def close(a: mx.array, b: mx.array) -> bool:
    # A number on the edge may be rounded up in one way and down in the other: one step of 255.
    return difference(a, b) < 2e-3


@pytest.fixture(params=[NOTHING_UNPACKED, ALL_UNPACKED], ids=["packed", "unpacked"])
def few(request: pytest.FixtureRequest) -> Iterator[int]:
    """Both ways of attending, for any number of queries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantized_kv_cache, "_few", lambda: request.param)
        yield request.param


@pytest.fixture(params=[1, 3, 256])
def growth(request: pytest.FixtureRequest) -> Iterator[int]:
    """Buffers that grow and slide at every token, now and then, or never in these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_GROWTH", request.param)
        yield request.param


@pytest.mark.parametrize("window", [None, 1, 2, 4, 9, 100])
def test_a_prompt_at_once_in_pieces_or_one_by_one_is_the_same(
    window: int | None, few: int, growth: int, random_gpt: Make
) -> None:
    model = random_gpt(**WIDE)
    for length in (1, 2, 5, 9):
        ids = ids_of(length, batch=2)
        expected = model(ids, Rounded(window))
        for edges in ([], list(range(1, length)), [4], [length - 1]):
            if all(0 < e < length for e in edges):
                cache = cache_for(model, window)
                assert close(in_pieces(model, ids, edges, cache), expected), (length, edges)
                assert cache.length == length
                assert cache.offset(1) == length


@given(
    st.integers(1, 40).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set()))
    ),
    st.none() | st.integers(1, 30),
    st.integers(1, 9),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([8, 4]),
    st.sampled_from([NOTHING_UNPACKED, 8, ALL_UNPACKED]),
)
def test_any_cut_gives_plain_attention_over_rounded_numbers(
    random_gpt: Make,
    cut: tuple[int, set[int]],
    window: int | None,
    growth: int,
    kv_heads: int,
    bits: int,
    few: int,
) -> None:
    """One layer, whose keys are the same in any cut; deeper, a step up or down becomes a change."""
    length, edges = cut
    model = random_gpt(**WIDE | {"n_kv_head": kv_heads, "n_layer": 1})
    ids = ids_of(length)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kv_cache, "_GROWTH", growth)
        patch.setattr(quantized_kv_cache, "_few", lambda: few)
        got = in_pieces(model, ids, sorted(edges), cache_for(model, window, bits))
    assert difference(got, model(ids, Rounded(window, bits))) < (2e-3 if bits == 8 else 0.03)


@pytest.mark.parametrize("window", [None, 3])
def test_layers_may_look_back_less_far(window: int | None, few: int, random_gpt: Make) -> None:
    model = random_gpt(**WIDE, sliding_window=5, sliding_layers=(1,))
    ids = ids_of(12)
    got = in_pieces(model, ids, [3, 4, 9], cache_for(model, window))
    assert close(got, model(ids, Rounded(window)))


@pytest.mark.parametrize(("bits", "most"), [(8, 0.05), (4, 0.4)])
def test_logits_stay_near_those_of_whole_numbers(bits: int, most: float, random_gpt: Make) -> None:
    model, ids = random_gpt(**WIDE), ids_of(40)
    exact = in_pieces(model, ids, [20], KVCache(2))
    error = difference(in_pieces(model, ids, [20], cache_for(model, bits=bits)), exact)
    assert 0 < error < most


@pytest.mark.parametrize("poison", [1e4, float("nan")])
def test_what_is_no_longer_or_not_yet_in_use_is_never_read(
    poison: float, growth: int, few: int, random_gpt: Make
) -> None:
    model, ids, window = random_gpt(**WIDE), ids_of(30), 5
    expected = model(ids, Rounded(window))
    cache = cache_for(model, window)
    logits = []
    for t in range(30):
        logits.append(model(ids[:, t : t + 1], cache))
        for layer in cache._layers:
            for name, part in layer.items():
                for buffer in (part.keys, part.values):
                    assert buffer is not None
                    bad = 2**32 - 1 if name == "weight" else poison
                    buffer[:, :, : max(0, part.end - (window - 1))] = bad
                    buffer[:, :, part.end :] = bad
    assert close(mx.concatenate(logits, axis=1), expected)


@pytest.mark.parametrize(
    ("head_dim", "bits", "dtype", "share"),
    [
        (64, 8, mx.float32, 9 / 32),
        (64, 4, mx.float32, 5 / 32),
        (32, 8, mx.float32, 10 / 32),
        (96, 4, mx.float32, 6 / 32),
        (128, 8, mx.float16, 8.5 / 16),
        (64, 4, mx.bfloat16, 4.5 / 16),
    ],
)
def test_memory_is_what_the_numbers_take(
    head_dim: int, bits: int, dtype: mx.Dtype, share: float
) -> None:
    cache = QuantizedKVCache(2, head_dim=head_dim, bits=bits)
    plain = KVCache(2)
    x = mx.random.normal((2, 3, 5, head_dim), key=mx.random.key(0)).astype(dtype)
    for layer in range(2):
        out = cache(layer, x, x, x, None)
        assert out.dtype == dtype
        mx.eval(out, plain(layer, x, x, x, None))
    assert cache.nbytes == plain.nbytes * share


def test_memory_is_bounded_by_window_and_piece(random_gpt: Make) -> None:
    model = random_gpt(**WIDE | {"n_layer": 1})
    window, longest = 40, 9
    cache = cache_for(model, window)
    bound = (window + 512 + longest) * kv_bytes_per_token(model.config) * 10 / 32
    ids = ids_of(longest)
    most = fed = 0
    while fed < 1200:
        piece = 1 + fed % longest
        mx.eval(model(ids[:, :piece], cache))
        fed += piece
        most = max(most, cache.nbytes)
    assert cache.length == fed
    assert most <= bound


def test_an_append_writes_in_place() -> None:
    cache = QuantizedKVCache(1, head_dim=64)
    x = mx.random.normal((1, 8, 4000, 64), key=mx.random.key(0))
    one = x[:, :, :1] + 0
    mx.eval(cache(0, one, x, x, None), one)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for _ in range(3):
        cache._append(0, one, one, None)
        mx.eval([(part.keys, part.values) for part in cache._layers[0].values()])
    assert mx.get_peak_memory() - before < cache.nbytes / 20


def test_an_empty_cache_holds_nothing() -> None:
    cache = QuantizedKVCache(3, head_dim=64)
    assert (cache.length, cache.nbytes, cache.offset(2)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"head_dim": 64, "bits": 6}, "8 or 4 bits; got 6"),
        ({"head_dim": 8}, "heads of 8 cannot be packed in groups of 32"),
        ({"head_dim": 80}, "heads of 80 cannot be packed in groups of 32"),
        ({"head_dim": 96, "group_size": 64}, "heads of 96 cannot be packed in groups of 64"),
        ({"head_dim": 64, "group_size": 16}, "does not quantize to 8 bits in groups of 16"),
    ],
)
def test_what_cannot_be_packed_is_refused(settings: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        QuantizedKVCache(2, **settings)


def test_groups_of_the_users_choice() -> None:
    x = mx.random.normal((1, 1, 4, 128), key=mx.random.key(0))
    for size, share in ((32, 10 / 32), (64, 9 / 32), (128, 8.5 / 32)):
        cache = QuantizedKVCache(1, head_dim=128, group_size=size)
        plain = KVCache(1)
        error = difference(cache(0, x, x, x, None), plain(0, x, x, x, None))
        assert 0 < error < 0.01
        assert cache.nbytes == plain.nbytes * share
