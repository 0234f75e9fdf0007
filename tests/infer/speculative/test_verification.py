"""Guesses or none, what comes out is what the model writes: the tokens, or the distribution."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_models import (
    IDS,
    PROMPT,
    Propose,
    TableModel,
    chi_square,
    drafts,
    filtered,
    guessed,
    speculate,
    text_distribution,
)

from mlxgpt.errors import ConfigError
from mlxgpt.infer.sampling import Context, SamplingParams, draw, next_logprobs, uniform
from mlxgpt.infer.speculative import Draft, Guessed, verification, verify

TARGET = TableModel(1)
DRAFT = TableModel(2, spread=0.9, like=TARGET)
FILTERS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    for temperature in (0.5, 1.0, 1.5)
    for top_k in (None, 3)
    for top_p in (None, 0.8)
]
TEXTS = 20_000


def seeds(count: int, **settings: Any) -> list[SamplingParams]:
    return [SamplingParams(seed=seed, **settings) for seed in range(count)]


def plain_text(params: SamplingParams, length: int, target: TableModel = TARGET) -> list[int]:
    """What the plain loop writes: one token after the other."""
    text: list[int] = []
    for index in range(length):
        logprobs = next_logprobs(target.logits([text]), [Context(params, PROMPT, text)])
        text += draw(logprobs, [uniform(params, "sample", index)]).tolist()
    return text


# The distribution


def assert_exact(settings: dict[str, Any], count: int, texts: int = TEXTS) -> None:
    params = SamplingParams(**settings)
    expected = text_distribution(TARGET, params)
    away = 0.5 * np.abs(expected - text_distribution(DRAFT, params)).sum()
    assert away > 0.2  # else a draft that is taken as it is would pass
    tokens, made, kept = speculate(
        verify, drafts, TARGET, DRAFT, seeds(texts, **settings), 3, count
    )
    statistic, limit = chi_square(tokens, expected)
    assert statistic < limit
    assert 0.2 < kept / made < 0.95  # guesses are kept, and refused


def test_the_first_three_tokens_have_the_distribution_of_the_model() -> None:
    assert_exact({"temperature": 0.8, "top_k": 4, "top_p": 0.9}, count=2, texts=6000)


@pytest.mark.slow
@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_that_distribution_under_every_filter(settings: dict[str, Any]) -> None:
    assert_exact(settings, count=2)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_that_distribution_with_drafts_of_other_lengths(count: int) -> None:
    assert_exact({"temperature": 1.0, "top_p": 0.9}, count)


def always_accepted(monkeypatch: pytest.MonkeyPatch) -> Propose:
    monkeypatch.setattr(verification, "_keep", lambda row, *_: len(row.draft.token_ids))
    return drafts


def drawn_again_from_p(monkeypatch: pytest.MonkeyPatch) -> Propose:
    monkeypatch.setattr(verification, "residual_logprobs", lambda p, _: p)
    return drafts


def one_random_number_for_two(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """The number that refused a guess also draws what stands in its place."""
    names = {"residual": "accept"}
    monkeypatch.setattr(
        verification,
        "uniform",
        lambda params, purpose, i: uniform(params, names.get(purpose, purpose), i),
    )
    return drafts


def one_place_for_all(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Guesses are tested with the number that drew them."""
    names = {"accept": "draft"}
    monkeypatch.setattr(
        verification,
        "uniform",
        lambda params, purpose, i: uniform(params, names.get(purpose, purpose), i),
    )
    return drafts


def with_stale_q(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Each guess comes with the distribution of the one before it."""

    def propose(model: TableModel, *rest: Any) -> list[Draft]:
        each = drafts(model, *rest)
        return [
            Draft(d.token_ids, d.logprobs[mx.array([0, *range(len(d.token_ids) - 1)])])
            for d in each
            if d.logprobs is not None
        ]

    return propose


def with_unfiltered_q(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """Drawn from what the filters left, tested against what was there before them."""

    def propose(model: TableModel, params: Sequence[SamplingParams], *rest: Any) -> list[Draft]:
        each = drafts(model, params, *rest)
        texts = rest[0]
        raw = [
            model.logits([[*text, *d.token_ids[:i]] for i in range(len(d.token_ids))])
            for text, d in zip(texts, each, strict=True)
        ]
        return [
            Draft(d.token_ids, x - mx.logsumexp(x, axis=-1, keepdims=True))
            for d, x in zip(each, raw, strict=True)
        ]

    return propose


def with_the_likeliest_of_a_soft_q(monkeypatch: pytest.MonkeyPatch) -> Propose:
    """The draft takes its likeliest token, and gives the distribution as if it had drawn."""

    def propose(
        model: TableModel, params: Sequence[SamplingParams], texts: Any, count: int
    ) -> list[Draft]:
        each = drafts(model, [SamplingParams(temperature=0)] * len(params), texts, count)
        contexts = [
            Context(p, PROMPT, [*text, *d.token_ids[:i]])
            for p, text, d in zip(params, texts, each, strict=True)
            for i in range(count)
        ]
        q = next_logprobs(model.logits([c.generated_ids for c in contexts]), contexts)
        return [Draft(d.token_ids, q[i * count : (i + 1) * count]) for i, d in enumerate(each)]

    return propose


WRONG = [
    always_accepted,
    drawn_again_from_p,
    one_random_number_for_two,
    one_place_for_all,
    with_stale_q,
    with_unfiltered_q,
    with_the_likeliest_of_a_soft_q,
]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_ways_are_seen_by_that_test(
    wrong: Callable[[pytest.MonkeyPatch], Propose], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"temperature": 0.8, "top_k": 4, "top_p": 0.9}
    propose = wrong(monkeypatch)
    tokens, _, _ = speculate(verify, propose, TARGET, DRAFT, seeds(2000, **settings), 3, 2)
    statistic, limit = chi_square(tokens, text_distribution(TARGET, SamplingParams(**settings)))
    assert statistic > 1.5 * limit


def test_the_share_of_guesses_kept_is_what_both_distributions_have_in_common() -> None:
    settings = {"temperature": 0.9, "top_p": 0.9}
    params = seeds(8000, **settings)
    rows = [
        guessed(TARGET, p, [], d)
        for p, d in zip(params, drafts(DRAFT, params, [[]] * len(params), 1), strict=True)
    ]
    got = verify([row for row, _ in rows], TARGET.logits([t for _, after in rows for t in after]))
    kept = np.mean([len(tokens) == 2 for tokens in got])
    p, q = (filtered(model.table[:1], params[0])[0] for model in (TARGET, DRAFT))
    share = np.minimum(p, q).sum()
    assert 0.3 < share < 0.9
    assert kept == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / len(params)))


# One step, by numbers


@pytest.fixture
def even_randoms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random numbers that fill the unit cube evenly as the seed counts up: less noise."""
    steps = {"accept": 0.7548776662466927, "residual": 0.5698402909980532, "sample": 0.43}
    steps["draft"] = 0.8191725133961645
    monkeypatch.setattr(
        verification, "uniform", lambda params, purpose, _: params.seed * steps[purpose] % 1.0
    )


P, Q = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]


def one_step(
    p: Sequence[float],
    q: Sequence[float],
    guesses: Sequence[int],
    first_seed: int = 0,
) -> np.ndarray:
    """Return how often each token comes first after guesses (R,) that are said to be from q."""
    logits = mx.broadcast_to(mx.log(mx.array(p)), (2 * len(guesses), len(p)))
    logprobs = mx.log(mx.array([q]))
    rows = [
        Guessed(SamplingParams(seed=first_seed + i), PROMPT, [], Draft([int(guess)], logprobs))
        for i, guess in enumerate(guesses)
    ]
    first = [tokens[0] for tokens in verify(rows, logits)]
    return np.bincount(first, minlength=len(p)) / len(first)


def drawn_from(q: Sequence[float], count: int) -> np.ndarray:
    """As many of each token as q says, in an order of its own."""
    ids = np.repeat(np.arange(len(q)), np.round(np.array(q) * count).astype(int))
    return np.random.Generator(np.random.Philox(key=5)).permutation(ids)


def test_known_shares_of_one_step(even_randoms: None, monkeypatch: pytest.MonkeyPatch) -> None:
    guesses = drawn_from(Q, 6_000)
    np.testing.assert_allclose(one_step(P, Q, guesses), P, atol=0.005)
    # the likeliest guess with a distribution it was not drawn from
    np.testing.assert_allclose(
        one_step(P, Q, np.ones(6_000, dtype=int)), [0.4, 0.6, 0.0], atol=0.005
    )
    with monkeypatch.context() as patch:
        patch.setattr(verification, "residual_logprobs", lambda p, _: p)
        np.testing.assert_allclose(one_step(P, Q, guesses), [0.35, 0.39, 0.26], atol=0.005)


def test_known_shares_with_filters(even_randoms: None) -> None:
    """Drawn by the draft from the best two of (.4, .3, .2, .1), wanted half and half."""
    target, best = [0.5, 0.5, 0.0, 0.0], [4 / 7, 3 / 7, 0.0, 0.0]
    guesses = drawn_from(best, 7_000)
    np.testing.assert_allclose(one_step(target, best, guesses), target, atol=0.005)
    raw = one_step(target, [0.4, 0.3, 0.2, 0.1], guesses)
    np.testing.assert_allclose(raw, [0.571, 0.429, 0, 0], atol=0.005)


@pytest.mark.slow
def test_known_shares_of_many_draws() -> None:
    at_once, times = 10_000, 20
    shares = []
    for first in range(0, times * at_once, at_once):
        params = [SamplingParams(seed=first + i) for i in range(at_once)]
        q = mx.broadcast_to(mx.log(mx.array(Q)), (at_once, 3))
        guesses = draw(q, [uniform(p, "draft", 0) for p in params]).tolist()
        shares.append(one_step(P, Q, guesses, first_seed=first))
    np.testing.assert_allclose(np.mean(shares, axis=0), P, atol=0.005)


@given(st.integers(1, 6), st.integers(0, 10**6), st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 1.0, 30.0]))
def test_the_residual_is_a_distribution_however_near_the_two_are(
    rows: int, seed: int, apart: float
) -> None:
    rng = np.random.Generator(np.random.Philox(key=seed))
    logits = 3 * rng.standard_normal((rows, 7))
    logits[:, 3] = -np.inf
    others = logits + apart * rng.standard_normal((rows, 7))
    p, q = (next_logprobs(mx.array(x), [Context(SamplingParams(), [0], [])] * rows)
            for x in (logits, others))  # fmt: skip
    got = np.exp(np.array(verification.residual_logprobs(p, q), dtype=np.float64))
    np.testing.assert_allclose(got.sum(-1), 1, atol=1e-5)
    assert (got[:, 3] == 0).all()
    if apart == 0.0:
        np.testing.assert_allclose(got, np.exp(np.array(p)), atol=1e-6)
    if apart >= 0.1:  # below, rounding is not small beside the difference
        more = np.maximum(np.exp(np.array(p, np.float64)) - np.exp(np.array(q, np.float64)), 0)
        np.testing.assert_allclose(got, more / more.sum(-1, keepdims=True), atol=2e-3)


def test_equal_distributions_accept_everything(even_randoms: None) -> None:
    for sharp in (P, [1.0, 0.0, 0.0]):
        guesses = drawn_from(sharp, 500)
        first = one_step(sharp, sharp, guesses)
        np.testing.assert_allclose(first, sharp, atol=1e-9)


# The tokens


def certain(guesses: Sequence[int]) -> Draft:
    return Draft(list(guesses), None)


def guess_of(kind: str, text: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """`count` guesses of what follows after `text`, of which some are right, none or all."""
    true = [int(t) for t in text[:count]]
    true += [0] * (count - len(true))
    if kind == "right":
        return true
    wrong = [(t + 1 + int(rng.integers(IDS - 1))) % IDS for t in true]
    return (
        wrong
        if kind == "wrong"
        else [t if rng.random() < 0.7 else w for t, w in zip(true, wrong, strict=True)]
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("kind", ["right", "wrong", "mixed"])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_certain_guesses_give_the_tokens_of_the_plain_loop(
    kind: str, count: int, temperature: float
) -> None:
    rng = np.random.Generator(np.random.Philox(key=count))
    length = 12
    params = seeds(6, temperature=temperature, top_p=0.95)
    plain = [plain_text(p, length + count + 1) for p in params]
    texts: list[list[int]] = [[] for _ in params]
    while min(map(len, texts)) < length:
        rows, places = [], []
        for p, text, whole in zip(params, texts, plain, strict=True):
            if len(text) >= length:
                continue
            guesses = guess_of(kind, whole[len(text) :], count, rng)
            row, after = guessed(TARGET, p, text, certain(guesses))
            rows.append((text, row, guesses))
            places += after
        got = verify([row for _, row, _ in rows], TARGET.logits(places))
        for (text, _, guesses), tokens in zip(rows, got, strict=True):
            assert tokens[:-1] == guesses[: len(tokens) - 1]
            if kind == "right":
                assert len(tokens) == count + 1
            if kind == "wrong":
                assert len(tokens) == 1
            text += tokens
    for text, whole in zip(texts, plain, strict=True):
        assert text[:length] == whole[:length]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_greedy_texts_ignore_what_a_draft_says_it_was_drawn_from(count: int) -> None:
    params = SamplingParams(temperature=0)
    whole = plain_text(params, 12)
    soft = SamplingParams(seed=4)
    text: list[int] = []
    while len(text) < 12:
        (draft,) = drafts(DRAFT, [soft], [text], count)
        row, after = guessed(TARGET, params, text, draft)
        (tokens,) = verify([row], TARGET.logits(after))
        text += tokens
    assert text[:12] == whole


def test_rows_of_all_kinds_together_get_what_they_get_alone() -> None:
    rng = np.random.Generator(np.random.Philox(key=8))
    rows, places = [], []
    for i in range(40):
        settings = [{}, {"temperature": 0}, {"top_k": 2}, {"temperature": 1.4, "top_p": 0.7}][i % 4]
        params = SamplingParams(seed=i, **settings)
        text = rng.integers(0, IDS, i % 3).tolist()
        count = int(rng.integers(0, 6))
        if i % 5 < 2 or not count:
            draft = certain(rng.integers(0, IDS, count).tolist())
        else:
            (draft,) = drafts(DRAFT, [params], [text], count)
        row, after = guessed(TARGET, params, text, draft)
        rows.append(row)
        places.append(TARGET.logits(after))
    together = verify(rows, mx.concatenate(places))
    alone = [verify([row], logits)[0] for row, logits in zip(rows, places, strict=True)]
    assert together == alone
    assert {len(tokens) for tokens in together} >= {1, 2, 3}
    assert verify([], mx.zeros((0, IDS))) == []


def test_a_draft_that_was_cut_is_the_shorter_draft() -> None:
    params = SamplingParams(seed=3)
    (long,), (short,) = (drafts(DRAFT, [params], [[1]], count) for count in (5, 2))
    cut = long.first(2)
    assert cut.token_ids == short.token_ids
    assert cut.logprobs is not None
    assert cut.logprobs.shape == (2, IDS)
    assert long.first(5) is long
    assert long.first(9) is long
    assert certain([1, 2]).first(1) == certain([1])
    for part in (long.first(0), certain([])):
        row, after = guessed(TARGET, params, [1], part)
        assert verify([row], TARGET.logits(after)) == [plain_text_after(params, [1])]


def plain_text_after(params: SamplingParams, text: list[int]) -> list[int]:
    logprobs = next_logprobs(TARGET.logits([text]), [Context(params, PROMPT, text)])
    return draw(logprobs, [uniform(params, "sample", len(text))]).tolist()


PENALTIES = [
    {"repetition_penalty": 1.7},
    {"presence_penalty": 4.0},
    {"frequency_penalty": 0.9},
    {"logit_bias": {2: 2.0, 0: -3.0}},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.5},
]


@pytest.mark.parametrize("count", [2, 8])
@pytest.mark.parametrize("settings", PENALTIES, ids=str)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_penalties_see_what_plain_decoding_sees(
    temperature: float, settings: dict[str, Any], count: int
) -> None:
    """Guesses before a place count there, refused ones never."""
    rng = np.random.Generator(np.random.Philox(key=1))
    params = SamplingParams(seed=9, temperature=temperature, **settings)
    length = 30
    whole = plain_text(params, length + count + 1)
    assert whole != plain_text(SamplingParams(seed=9, temperature=temperature), len(whole))
    for kind in ("mixed", "right", "wrong"):
        text: list[int] = []
        while len(text) < length:
            guesses = guess_of(kind, whole[len(text) :], count, rng)
            row, after = guessed(TARGET, params, text, certain(guesses))
            (tokens,) = verify([row], TARGET.logits(after))
            text += tokens
        assert text[:length] == whole[:length]


# What it does with what it is given


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    plain = next_logprobs
    monkeypatch.setattr(
        verification,
        "next_logprobs",
        lambda logits, contexts: (seen.append("distributions"), plain(logits, contexts))[1],
    )
    return seen


def test_one_call_gives_the_distributions_of_a_step(evaluations: list[str]) -> None:
    params = seeds(7)
    rows = [
        guessed(TARGET, p, [], d.first(i % 4))
        for i, (p, d) in enumerate(zip(params, drafts(DRAFT, params, [[]] * 7, 4), strict=True))
    ]
    verify([row for row, _ in rows], TARGET.logits([t for _, after in rows for t in after]))
    assert evaluations == ["distributions"]


def test_ids_that_cannot_be_drawn_may_be_cut_off() -> None:
    """A vocabulary padded beyond its tokenizer: the caller slices, and the draft has as many."""
    params = seeds(60)
    rows = [
        guessed(TARGET, p, [], d)
        for p, d in zip(params, drafts(DRAFT, params, [[]] * 60, 2), strict=True)
    ]
    logits = TARGET.logits([t for _, after in rows for t in after])
    wider = mx.concatenate([logits, mx.full((len(logits), 3), 50.0)], axis=-1)
    expected = verify([row for row, _ in rows], logits)
    assert verify([row for row, _ in rows], wider[:, :IDS]) == expected
    with pytest.raises(ConfigError, match=r"shape \(2, 8\).*got \(2, 5\)"):
        verify([row for row, _ in rows], wider)


def test_half_precision_logits() -> None:
    params = seeds(50)
    rows = [
        guessed(TARGET, p, [], d)
        for p, d in zip(params, drafts(DRAFT, params, [[]] * 50, 2), strict=True)
    ]
    logits = TARGET.logits([t for _, after in rows for t in after]).astype(mx.bfloat16)
    again = verify([row for row, _ in rows], logits.astype(mx.float32))
    assert verify([row for row, _ in rows], logits) == again
