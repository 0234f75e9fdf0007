import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sampling_laws import alone, by_definition, distribution

from mlxgpt.infer.sampling import Context, SamplingParams, filters, next_logprobs
from mlxgpt.infer.sampling.exponential import exp
from mlxgpt.infer.sampling.largest import k_largest, k_largest_plain
from mlxgpt.infer.sampling.row_sums import PIECE, pieces, row_sums, running_sums

NUMBERS = st.integers(-12, 12).map(lambda n: n / 4) | st.floats(-20, 20, width=32)


@given(
    st.lists(NUMBERS, min_size=1, max_size=12),
    st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.5, 4.0]),
    st.none() | st.integers(1, 14),
    st.none() | st.floats(0.01, 1),
    st.none() | st.floats(0, 1),
)
def test_the_distribution_is_that_of_the_definition(
    logits: list[float], temperature: float, top_k: int | None, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    # values that differ by less than float32 sees are equal there, and not in float64
    gaps = np.diff(np.unique(np.array(logits)))
    assume(not len(gaps) or gaps.min() > 1e-3)
    expected = by_definition(logits, params)
    assume(expected is not None)
    contexts = [Context(params, [], [])] * 2
    logprobs = next_logprobs(mx.array([logits, logits[::-1]]), contexts)
    assert logprobs.dtype == mx.float32
    got = np.exp(np.array(logprobs, dtype=np.float64))
    np.testing.assert_allclose(got[0], expected, atol=1e-5)
    assert ((got[0] == 0) == (expected == 0)).all() or expected[got[0] == 0].max() < 1e-30
    if temperature:
        np.testing.assert_allclose(got[1], got[0][::-1], atol=1e-6)


def test_top_k_keeps_the_k_likeliest_and_what_ties_with_the_last() -> None:
    logits = [0.0, 3.0, 1.0, 2.0, -1.0]
    p = np.exp([3.0, 2.0, 1.0])
    got = distribution(logits, top_k=3)
    np.testing.assert_allclose(got[[1, 3, 2]], p / p.sum(), rtol=1e-5)
    assert got[[0, 4]].tolist() == [0, 0]
    assert (distribution([1.0, 1.0, 1.0, 0.0], top_k=2) > 0).tolist() == [True, True, True, False]
    assert distribution(logits, top_k=1).tolist() == [0, 1, 0, 0, 0]
    for k in (5, 6, 10**9):
        np.testing.assert_array_equal(distribution(logits, top_k=k), distribution(logits))


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass() -> None:
    logits = np.log([0.15, 0.5, 0.05, 0.3]).tolist()
    np.testing.assert_allclose(distribution(logits, top_p=0.75), [0, 0.625, 0, 0.375], rtol=1e-5)
    np.testing.assert_allclose(distribution(logits, top_p=0.49), [0, 1, 0, 0])
    np.testing.assert_allclose(distribution(logits, top_p=1e-9), [0, 1, 0, 0])
    assert (distribution(logits, top_p=0.81) > 0).sum() == 3
    assert (distribution(logits, top_p=0.96) > 0).sum() == 4
    flat = distribution([0.0] * 4, top_p=0.3)
    assert flat.tolist() == [0.25] * 4  # equals of the last one stay with it


def test_min_p_is_a_share_of_the_likeliest() -> None:
    logits = np.log([0.15, 0.5, 0.05, 0.3]).tolist()
    np.testing.assert_allclose(
        distribution(logits, min_p=0.25), np.array([0.15, 0.5, 0, 0.3]) / 0.95, rtol=1e-5
    )
    assert distribution(logits, min_p=1).tolist() == [0, 1, 0, 0]
    np.testing.assert_array_equal(distribution(logits, min_p=0), distribution(logits))


def test_the_filters_act_one_after_the_other() -> None:
    logits = np.log([0.4, 0.3, 0.2, 0.1]).tolist()
    # of the best two, .57 and .43, the first alone reaches .5; of all four it would not
    assert (distribution(logits, top_k=2, top_p=0.5) > 0).tolist() == [True, False, False, False]
    # temperature comes first: at 0.5 the shares are .53 .30 .13 .03
    assert (distribution(logits, temperature=0.5, top_p=0.53) > 0).sum() == 1
    assert (distribution(logits, temperature=2.0, top_p=0.53) > 0).sum() == 2
    # the mass of top-p is counted before min-p removes anything
    assert (distribution(logits, top_p=0.85, min_p=0.6) > 0).sum() == 2
    assert (distribution(logits, top_p=0.65, min_p=0.6) > 0).sum() == 2
    np.testing.assert_allclose(distribution(logits, top_p=0.65, min_p=0.6)[:2], [4 / 7, 3 / 7])


def test_no_temperature_takes_the_likeliest_and_the_lowest_id_among_equals() -> None:
    logits = [1.0, 5.0, 5.0, -math.inf]
    assert distribution(logits, temperature=0).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e-3, 1e-20, 1e-38, 1e-46, 1e-300, 1e30, 1e300])
def test_extreme_temperatures_give_numbers(temperature: float) -> None:
    got = distribution([50.0, 70.0, -30.0, 70.0], temperature=temperature)
    expected = [0, 0.5, 0, 0.5] if temperature < 1 else [0.25] * 4
    np.testing.assert_allclose(got, expected, atol=1e-6)
    assert distribution([1.0, 2.0], temperature=temperature, top_p=0.9, top_k=2).sum() == (
        pytest.approx(1)
    )


def test_a_token_of_no_probability_stays_without() -> None:
    logits = [0.0, -math.inf, 1.0, -math.inf]
    for settings in ({}, {"top_k": 3}, {"top_p": 0.999999}, {"min_p": 1e-9}, {"temperature": 9.0}):
        got = distribution(logits, **settings)
        assert got[[1, 3]].tolist() == [0, 0]
        assert got.sum() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: mx.Dtype) -> None:
    size = 4000
    logits = mx.concatenate([mx.array([math.log(0.8)]), mx.full((size,), math.log(0.2 / size))])
    logits = logits.astype(dtype)[None]
    values = np.array(logits.astype(mx.float32), dtype=np.float64)[0]
    expected = np.exp(values - values.max())
    expected /= expected.sum()
    for settings in ({}, {"top_p": 0.99999}):
        logprobs = next_logprobs(logits, [alone(**settings)])
        assert logprobs.dtype == mx.float32
        p = np.exp(np.array(logprobs, dtype=np.float64))[0]
        assert p.sum() == pytest.approx(1, abs=1e-4)
        np.testing.assert_allclose(p, expected, rtol=1e-3)


@pytest.mark.parametrize("size", [5_000, 50_000, 130_000])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_probabilities_of_a_large_vocabulary_have_the_sum_one(dtype: mx.Dtype, size: int) -> None:
    # a head, and a fifth of the mass spread evenly: too small to be added one after the other
    head = mx.log(mx.array([0.3, 0.25, 0.25]))
    logits = mx.concatenate([head, mx.full((size,), math.log(0.2 / size))]).astype(dtype)
    for settings in ({}, {"temperature": 1.5}, {"top_k": size}, {"min_p": 1e-9}):
        logprobs = next_logprobs(logits[None], [alone(**settings)])
        total = np.exp(np.array(logprobs, dtype=np.float64)).sum()
        assert total == pytest.approx(1, abs=2e-6), settings


# Many rows


MIXED: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 0.7, "top_k": 40},
    {"top_p": 0.9},
    {"temperature": 2.5, "top_p": 0.95},
    {"top_k": 300, "top_p": 0.8, "temperature": 1.5},
    {"min_p": 0.1},
    {"temperature": 1.3, "top_k": 5, "top_p": 0.5, "min_p": 0.3},
    {"top_k": 10**6, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 1},
    {"temperature": 5.0, "top_p": 0.999},
    {"logit_bias": {3: 4.0}, "repetition_penalty": 1.4, "presence_penalty": 0.5},
]


def random_logits(rows: int, size: int, seed: int = 0) -> mx.array:
    rng = np.random.Generator(np.random.Philox(key=seed))
    return mx.array((3 * rng.standard_normal((rows, size))).astype(np.float32))


@pytest.mark.parametrize("size", [7, 600, 2_500, 20_001])
def test_a_row_does_not_depend_on_its_neighbours(size: int) -> None:
    """To the bit, in any order, each with settings of its own."""
    logits = random_logits(len(MIXED), size)
    contexts = [Context(SamplingParams(**s), [1, 2], [3, 5, 3]) for s in MIXED]
    together = next_logprobs(logits, contexts)
    for i, context in enumerate(contexts):
        assert mx.array_equal(next_logprobs(logits[i : i + 1], [context])[0], together[i]), i
    turned = next_logprobs(logits[::-1], contexts[::-1])
    assert mx.array_equal(turned[::-1], together)


def plain_logprobs(logits: mx.array, params: SamplingParams) -> mx.array:
    """`next_logprobs` of one setting, by whole sorts and MLX's own exp."""
    logits = logits.astype(mx.float32)
    logits = logits - logits.max(axis=-1, keepdims=True)
    logprobs = logits / params.temperature
    logprobs = logprobs - mx.log(row_sums(mx.exp(logprobs)))

    def kept(lowest: mx.array) -> mx.array:
        left = mx.where(logprobs >= lowest, logprobs, -math.inf)
        return left - mx.log(row_sums(mx.exp(left)))

    if params.top_k is not None and params.top_k < logits.shape[-1]:
        logprobs = kept(mx.sort(logprobs, axis=-1)[:, -params.top_k, None])
    if params.top_p is not None and params.top_p < 1:
        down = -mx.sort(-logprobs, axis=-1)
        before = np.cumsum(np.exp(np.array(down, dtype=np.float64)), axis=-1)
        before = np.pad(before[:, :-1], [(0, 0), (1, 0)])
        stay = mx.array(before < params.top_p)
        logprobs = kept(mx.where(stay, down, math.inf).min(axis=-1, keepdims=True))
    if params.min_p:
        highest = logprobs.max(axis=-1, keepdims=True)
        logprobs = kept(highest + math.log(params.min_p))
    return logprobs


@pytest.mark.parametrize("size", [900, 4_099, 50_257])
@pytest.mark.parametrize("spread", [0.2, 1.0, 8.0])
def test_the_fast_way_is_the_plain_way(size: int, spread: float) -> None:
    """Peaked rows whose mass lies in a few tokens, and flat ones that need all to be sorted."""
    logits = spread * random_logits(3, size, seed=size)
    for settings in ({}, {"top_k": 40}, {"top_k": size // 2, "top_p": 0.7}, {"top_p": 0.9},
                     {"top_p": 0.3}, {"temperature": 0.6, "top_p": 0.95}, {"min_p": 0.02},
                     {"top_k": 1000, "top_p": 0.9, "min_p": 1e-3}):  # fmt: skip
        params = SamplingParams(**settings)
        fast = np.array(next_logprobs(logits, [Context(params, [], [])] * 3))
        plain = np.array(plain_logprobs(logits, params))
        differ = (fast == -np.inf) != (plain == -np.inf)
        # Float32 may see a token at the very edge of a mass on either side.
        assert differ.sum() <= (2 if params.top_p else 0), settings
        same = ~differ & (fast > -np.inf)
        np.testing.assert_allclose(fast[same], plain[same], atol=2e-5, rtol=2e-6)


def test_both_ways_to_a_mass_keep_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at some of the largest first, as on a CPU, and sorting all, as on a GPU."""
    spreads = mx.array([0.05, 0.5, 1.0, 1.5, 3.0, 10.0])[:, None]
    logits = spreads * random_logits(6, 40_000)
    contexts = [alone(top_p=p) for p in (0.9, 0.5, 0.99, 0.9, 0.7, 0.2)]
    first = next_logprobs(logits, contexts)
    looks, sorts = [], []
    real, real_sort = filters.k_largest, np.sort
    monkeypatch.setattr(
        filters, "k_largest", lambda x, k: looks.append((*x.shape, k)) or real(x, k)
    )
    monkeypatch.setattr(np, "sort", lambda x, axis: sorts.append(len(x)) or real_sort(x, axis=axis))
    assert mx.array_equal(next_logprobs(logits, contexts), first)
    assert (looks, sorts) == ([(6, 40_000, 256)], [3])  # three rows have the mass in a few tokens
    looks.clear()
    monkeypatch.setattr(filters, "_on_cpu", lambda: False)
    assert mx.array_equal(next_logprobs(logits, contexts), first)
    assert (looks, sorts) == ([(6, 40_000, 40_000)], [3])


def test_without_a_filter_nothing_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> mx.array:
        raise AssertionError("sorted")

    sorted_rows: list[int] = []
    real = filters.k_largest
    logits = random_logits(4, 300)
    plain = [alone(), alone(temperature=0), alone(temperature=2.0, min_p=0.1), alone(top_p=1.0)]
    with monkeypatch.context() as patch:
        patch.setattr(filters, "k_largest", never)
        next_logprobs(logits, plain)
    monkeypatch.setattr(filters, "k_largest", lambda x, k: sorted_rows.append(len(x)) or real(x, k))
    next_logprobs(logits, [*plain[:3], alone(top_k=3)])
    assert sorted_rows == [1]


def test_no_rows_are_no_rows() -> None:
    assert next_logprobs(mx.zeros((0, 5)), []).shape == (0, 5)


# The parts


@given(st.integers(1, 400), st.integers(1, 3), st.integers(0, 999), st.data())
def test_the_k_largest_are_those_of_a_sort(
    size: int, rows: int, seed: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, size))
    rng = np.random.Generator(np.random.Philox(key=seed))
    x = rng.integers(-6, 6, (rows, size)).astype(np.float32)  # many are equal
    x[x == -6] = -np.inf
    wanted = -np.sort(-x, axis=-1)[:, :k]
    for way in (k_largest, k_largest_plain):
        np.testing.assert_array_equal(np.array(way(mx.array(x), k)), wanted)


@pytest.mark.parametrize("size", [100, 49_152, 50_257])
def test_exp_is_that_of_float64(size: int) -> None:
    x = np.concatenate([[0.0, -0.0, -1e-30], np.linspace(-87, 0, size - 3)]).astype(np.float32)
    got = np.array(exp(mx.array(np.stack([x, x[::-1]]))), dtype=np.float64)
    # of x = -87 one bit is 8e-6, and both ways begin with a product that rounds
    np.testing.assert_allclose(got[0], np.exp(x.astype(np.float64)), rtol=5e-6)
    near = x > -3
    np.testing.assert_allclose(got[0][near], np.exp(x[near].astype(np.float64)), rtol=4e-7)
    assert got[0][:3].tolist() == [1, 1, 1]
    np.testing.assert_array_equal(got[1][::-1], got[0])
    far = mx.broadcast_to(mx.array([[-89.0, -1e3, -1e30, -math.inf]]).reshape(4, 1), (4, size))
    assert exp(far).max().item() == 0


@pytest.mark.parametrize("size", [1, 15, 16, 17, 256, 257, 3_000, 151_936])
def test_sums_lose_nothing(size: int) -> None:
    rng = np.random.Generator(np.random.Philox(key=size))
    x = rng.random((2, size)).astype(np.float32)
    x[0] = np.float32(0.2 / size)  # all equal: rounding would always go one way
    x[0, 0] = 0.8
    x /= x.astype(np.float64).sum(axis=-1, keepdims=True)
    exact = np.cumsum(x.astype(np.float64), axis=-1)
    np.testing.assert_allclose(np.array(row_sums(mx.array(x)))[:, 0], exact[:, -1], atol=5e-7)
    np.testing.assert_allclose(np.array(running_sums(mx.array(x))), exact, atol=2e-6)
    cut, sums = pieces(mx.array(x))
    assert cut.shape == (2, -(-size // PIECE), PIECE)
    np.testing.assert_array_equal(np.array(cut).reshape(2, -1)[:, :size], x)
    np.testing.assert_allclose(
        np.array(sums), np.array(cut).sum(axis=-1, dtype=np.float64), rtol=3e-6
    )
    for length in (1, size // 2, size - 1):
        if 0 < length < size:
            short = running_sums(mx.array(x[:, :length]))
            np.testing.assert_array_equal(
                np.array(short), np.array(running_sums(mx.array(x)))[:, :length]
            )
