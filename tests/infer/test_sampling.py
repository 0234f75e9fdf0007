import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams, sample, sampling_logprobs


def by_definition(logits: list[float], params: SamplingParams) -> np.ndarray | None:
    """Return the distribution in float64, one filter after the other.

    None where a token lies so near the edge of a filter that float32 may put it on either side.
    """
    x = np.array(logits, dtype=np.float64)
    if params.temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    p = np.exp((x - x.max()) / params.temperature)
    p /= p.sum()
    if params.top_k is not None and params.top_k < len(p):
        p = np.where(p >= np.sort(p)[::-1][params.top_k - 1] * (1 - 1e-9), p, 0)
        p /= p.sum()
    if params.top_p is not None and params.top_p < 1:
        order = np.argsort(-p, kind="stable")
        mass, kept = 0.0, 0.0
        for i in order:
            if i != order[0] and abs(mass - params.top_p) < 1e-4:
                return None
            if i == order[0] or mass < params.top_p:
                kept = p[i]
            mass += p[i]
        p = np.where(p >= kept * (1 - 1e-9), p, 0)
        p /= p.sum()
    if params.min_p:
        share = p / p.max()
        if (abs(share - params.min_p) < 1e-4 * params.min_p).any() and params.min_p < 1:
            return None
        p = np.where(share >= params.min_p * (1 - 1e-9), p, 0)
        p /= p.sum()
    return p


def distribution(logits: list[float], **settings: Any) -> np.ndarray:
    return np.exp(np.array(sampling_logprobs(mx.array([logits]), SamplingParams(**settings)))[0])


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
    logprobs = sampling_logprobs(mx.array([logits, logits[::-1]]), params)
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
    assert sample(mx.array([logits]), SamplingParams(temperature=0), 3).tolist() == [1]


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
    params = SamplingParams(top_p=0.99999)
    for settings in (SamplingParams(), params):
        logprobs = sampling_logprobs(logits, settings)
        assert logprobs.dtype == mx.float32
        p = np.exp(np.array(logprobs, dtype=np.float64))[0]
        assert p.sum() == pytest.approx(1, abs=1e-4)
        np.testing.assert_allclose(p, expected, rtol=1e-3)
    rows = mx.broadcast_to(logits, (1000, size + 1))
    drawn = np.concatenate([np.array(sample(rows, SamplingParams(), i)) for i in range(6)])
    # 6 sigma is .031; bfloat16 sums would lose the tail, half-precision noise repeat its head
    assert (drawn > 0).mean() == pytest.approx(1 - expected[0], abs=0.031)
    assert len(np.unique(drawn[drawn > 0])) > 900


@pytest.mark.parametrize("size", [5_000, 50_000, 130_000])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_probabilities_of_a_large_vocabulary_have_the_sum_one(dtype: mx.Dtype, size: int) -> None:
    # a head, and a fifth of the mass spread evenly: too small to be added one after the other
    head = mx.log(mx.array([0.3, 0.25, 0.25]))
    logits = mx.concatenate([head, mx.full((size,), math.log(0.2 / size))]).astype(dtype)
    for settings in ({}, {"temperature": 1.5}, {"top_k": size}, {"min_p": 1e-9}):
        logprobs = sampling_logprobs(logits[None], SamplingParams(**settings))
        total = np.exp(np.array(logprobs, dtype=np.float64)).sum()
        assert total == pytest.approx(1, abs=1e-4), settings


SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"temperature": 1.5, "top_k": 3},
    {"top_p": 0.75},
    {"min_p": 0.4, "temperature": 2.0},
]


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    kept = expected > 0
    assert counts[~kept].sum() == 0
    return float(((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum())


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_follow_the_distribution(settings: dict[str, Any]) -> None:
    logits = [0.3, 1.2, -0.5, 2.0, 0.0, 1.2]
    params = SamplingParams(**settings, seed=4)
    rows = mx.broadcast_to(mx.array([logits]), (10_000, 6))
    counts = np.bincount(np.array(sample(rows, params, 17)), minlength=6)
    p = by_definition(logits, params)
    assert p is not None
    # 5 degrees of freedom at most: 25.7 is passed by chance once in 10,000 times
    assert chi_square(counts, p * counts.sum()) < 25.7
    raw = by_definition(logits, SamplingParams())
    assert raw is not None
    if settings:  # the test has the power to see that a setting is left out
        assert ((counts - raw * 10_000) ** 2 / (raw * 10_000)).sum() > 50


def test_draws_of_one_text_are_independent_of_each_other() -> None:
    params = SamplingParams(seed=3)
    logits = mx.zeros((1, 4))
    ids = np.concatenate([np.array(sample(logits, params, i)) for i in range(1600)])
    pairs = np.bincount(ids[:-1] * 4 + ids[1:], minlength=16)
    # 15 degrees of freedom: 44.3 is passed by chance once in 10,000 times
    assert chi_square(pairs, np.full(16, len(ids[1:]) / 16)) < 44.3


def test_a_draw_depends_on_seed_and_place_alone() -> None:
    flat = mx.zeros((1, 100))
    texts = [
        [sample(flat, SamplingParams(seed=seed), i).item() for i in range(50)] for seed in (3, 3, 4)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert len(set(texts[0])) > 20
    mx.random.seed(99)
    assert sample(flat, SamplingParams(seed=3), 49).item() == texts[0][49]


@pytest.mark.parametrize(
    "settings",
    [{"temperature": -0.1}, {"temperature": math.nan}, {"temperature": math.inf},
     {"top_k": 0}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.01}, {"top_p": math.nan},
     {"top_p": -1.0}, {"min_p": -0.1}, {"min_p": 1.1}, {"min_p": math.nan}, {"max_tokens": -1}],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"'{name}'"):
        SamplingParams(**settings)
