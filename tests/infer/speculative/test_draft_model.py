"""A second model that guesses: its guesses are its own, whatever its cache went through."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from table_models import chi_square, filtered

from mlxgpt.errors import ConfigError, MLXGPTWarning
from mlxgpt.infer import SamplingParams, generate_plain
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.sampling import Context, draw, next_logprobs, uniform
from mlxgpt.infer.speculative import Draft, DraftModel, Guessed, verify
from mlxgpt.model import GPT, CausalAttend, kv_bytes_per_token

Make = Callable[..., GPT]
VOCAB = 61


def text_of(request: int, token_ids: Sequence[int], **settings: Any) -> Text:
    params = SamplingParams(seed=request, **settings)
    return Text(request, 0, len(token_ids), list(token_ids), params)


def random_ids(rng: np.random.Generator, count: int, vocab: int = VOCAB) -> list[int]:
    return rng.integers(0, vocab, count).tolist()


def logits_after(model: GPT, token_ids: Sequence[int]) -> mx.array:
    """The plain way: the whole text, without a cache, (1, V)."""
    return model(mx.array([token_ids]), CausalAttend(model.config.context))[:, -1]


def by_definition(model: GPT, text: Text, count: int) -> tuple[list[int], np.ndarray]:
    """Guess one token after the other, the whole text anew for each: the tokens and (k, V)."""
    guesses: list[int] = []
    every = []
    for _ in range(count):
        written = text.token_ids[text.prompt_length :] + guesses
        context = Context(text.params, text.token_ids[: text.prompt_length], written)
        q = next_logprobs(logits_after(model, text.token_ids + guesses), [context])
        guesses += draw(q, [uniform(text.params, "draft", len(written))]).tolist()
        every.append(np.array(q[0]))
    return guesses, np.array(every)


def assert_same_guesses(model: GPT, text: Text, draft: Draft, count: int) -> None:
    guesses, logprobs = by_definition(model, text, count)
    assert draft.token_ids == guesses
    if text.params.temperature == 0:
        assert draft.logprobs is None
    else:
        assert draft.logprobs is not None
        np.testing.assert_allclose(np.exp(draft.logprobs), np.exp(logprobs), atol=1e-5)


def go_on(text: Text, draft: Draft, kept: int, rng: np.random.Generator) -> None:
    """Accept `kept` guesses and write another token."""
    text.token_ids += draft.token_ids[:kept] + random_ids(rng, 1)


SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "top_p": 0.9},
    {"temperature": 1.3, "top_k": 7},
    {"temperature": 1.0, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    {"temperature": 0, "frequency_penalty": 0.7, "logit_bias": {5: 2.0}},
]


@pytest.mark.parametrize("size", [{"max_seq_len": 200}, {"max_seq_len": 12}], ids=str)
@pytest.mark.parametrize("room", [{}, {"block_size": 3, "max_step_tokens": 5}], ids=str)
def test_guesses_are_those_of_the_model_without_a_cache(
    size: dict[str, int], room: dict[str, int], random_gpt: Make
) -> None:
    """Texts come and go, each goes on with as many of its guesses as it likes."""
    rng = np.random.Generator(np.random.Philox(key=2))
    model = random_gpt(**size)
    proposer = DraftModel(model, **room)
    texts: list[Text] = []
    for step in range(14):
        if len(texts) < 4:
            settings = SETTINGS[step % len(SETTINGS)]
            texts.append(text_of(step, random_ids(rng, int(rng.integers(1, 25))), **settings))
        wanted = {text: int(rng.integers(0, 6)) for text in texts}
        drafts = proposer.propose(wanted)
        assert drafts.keys() == {text for text, count in wanted.items() if count}
        for text, draft in drafts.items():
            assert_same_guesses(model, text, draft, wanted[text])
            if rng.random() < 0.9:  # else the step did not come to it
                go_on(text, draft, int(rng.integers(0, wanted[text] + 1)), rng)
        for text in [t for t in texts if t not in drafts]:
            go_on(text, Draft([], None), 0, rng)  # written plainly
        if step % 4 == 3:
            proposer.forget(texts.pop(int(rng.integers(len(texts)))))
    for text in texts:
        proposer.forget(text)
        proposer.forget(text)  # twice is no fault
    assert proposer._blocks.available == capacity(proposer)


def capacity(proposer: DraftModel) -> int:
    used = sum(len(f.table.blocks) for f in proposer._texts.values())
    return proposer._blocks.available + used


def test_guesses_do_not_depend_on_neighbours(random_gpt: Make) -> None:
    rng = np.random.Generator(np.random.Philox(key=3))
    model = random_gpt()
    texts = [text_of(i, random_ids(rng, 3 + i), temperature=1.0) for i in range(5)]
    together = DraftModel(model).propose(dict.fromkeys(texts, 4))
    for text in texts:
        alone = DraftModel(model).propose({text: 4})[text]
        assert alone.token_ids == together[text].token_ids


def test_only_what_is_new_is_read(random_gpt: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_gpt(max_seq_len=100)
    proposer = DraftModel(model, max_step_tokens=16)
    steps: list[int] = []
    plain = type(proposer._network).__call__

    def counted(network: Any, input_ids: mx.array, *rest: Any) -> mx.array:
        steps.append(input_ids.shape[0])
        return plain(network, input_ids, *rest)

    monkeypatch.setattr(type(proposer._network), "__call__", counted)
    rng = np.random.Generator(np.random.Philox(key=4))
    text = text_of(0, random_ids(rng, 40), temperature=0)
    draft = proposer.propose({text: 3})[text]
    assert steps == [16, 16, 8, 1, 1]  # the prompt in pieces; then guess after guess
    steps.clear()
    text.token_ids += [*draft.token_ids, 7]  # all kept: the last guess was not read yet
    draft = proposer.propose({text: 2})[text]
    assert steps == [2, 1]
    steps.clear()
    text.token_ids += [(draft.token_ids[0] + 1) % VOCAB]  # none kept
    proposer.propose({text: 2})
    assert steps == [1, 1]


def test_new_weights_are_noticed(random_gpt: Make) -> None:
    rng = np.random.Generator(np.random.Philox(key=9))
    model, other = random_gpt(max_seq_len=64), random_gpt(seed=8, max_seq_len=64)
    proposer = DraftModel(model)
    text = text_of(0, random_ids(rng, 9), temperature=0)
    before = proposer.propose({text: 4})[text].token_ids
    model.set_weights(other.weights())
    draft = proposer.propose({text: 4})[text]
    assert_same_guesses(other, text, draft, 4)
    assert draft.token_ids != before


def test_a_full_cache_leaves_the_latest_without_guesses(random_gpt: Make) -> None:
    rng = np.random.Generator(np.random.Philox(key=5))
    model = random_gpt(max_seq_len=400)
    room = 30 * kv_bytes_per_token(model.config)  # 10 blocks of 3
    proposer = DraftModel(model, kv_memory=room, block_size=3)
    texts = [text_of(i, random_ids(rng, 8), temperature=0) for i in range(4)]
    with pytest.warns(MLXGPTWarning, match="cache is full: 2 of 4 texts get no guesses"):
        drafts = proposer.propose(dict.fromkeys(texts, 2))
    assert drafts.keys() == set(texts[:2])  # 3 blocks each, and the third would leave 1 for 2
    served = []
    for _ in range(12):
        for text in texts:
            go_on(text, drafts.get(text, Draft([], None)), 0, rng)
        drafts = proposer.propose(dict.fromkeys(texts, 2))  # warns no more
        assert texts[0] in drafts
        for text, draft in drafts.items():
            assert_same_guesses(model, text, draft, 2)
        served.append([text.request_id for text in drafts])
    assert served[0] == [0, 1]
    assert served[-1] == [0]  # it has grown, and the younger one was put out
    for text in texts[:2]:
        proposer.forget(text)
    new = text_of(9, random_ids(rng, 4), temperature=0)
    assert proposer.propose({new: 3}).keys() == {new}
    assert proposer.propose({text_of(10, random_ids(rng, 400), temperature=0): 1}) == {}


@pytest.mark.parametrize("size", [{"max_seq_len": 400}, {"max_seq_len": 10}], ids=str)
@pytest.mark.filterwarnings("ignore::mlxgpt.errors.MLXGPTWarning")
def test_a_tight_cache_never_runs_out_in_the_middle(size: dict[str, int], random_gpt: Make) -> None:
    model = random_gpt(n_layer=1, n_embd=8, n_head=2, n_kv_head=1, **size)
    rng = np.random.Generator(np.random.Philox(key=6))
    for round_ in range(12):
        block_size = int(rng.integers(1, 6))
        blocks = int(rng.integers(4, 40))
        proposer = DraftModel(
            model,
            kv_memory=blocks * block_size * kv_bytes_per_token(model.config),
            block_size=block_size,
            max_step_tokens=int(rng.integers(1, 30)),
        )
        texts: list[Text] = []
        made = 0
        for step in range(25):
            if rng.random() < 0.4:
                ids = random_ids(rng, int(rng.integers(1, 30)))
                texts.append(text_of(int(rng.integers(1000)), ids, temperature=0))
            drafts = proposer.propose({t: int(rng.integers(0, 5)) for t in texts})
            made += len(drafts)
            for text in texts:
                draft = drafts.get(text, Draft([], None))
                go_on(text, draft, int(rng.integers(0, len(draft.token_ids) + 1)), rng)
            if texts and rng.random() < 0.2:
                proposer.forget(texts.pop(int(rng.integers(len(texts)))))
            assert capacity(proposer) == blocks, (round_, step)
        assert made


def test_ids_beyond_those_of_the_tokenizer_are_never_guessed(random_gpt: Make) -> None:
    model = random_gpt()
    weights = model.weights()["model.embed_tokens.weight"]
    weights[55:] = 3 * mx.ones_like(weights[55:])
    model.set_weights({"model.embed_tokens.weight": weights})
    rng = np.random.Generator(np.random.Philox(key=7))
    for temperature in (0, 2.0):
        proposer = DraftModel(model, num_ids=55)
        text = text_of(1, random_ids(rng, 5, 55), temperature=temperature)
        draft = proposer.propose({text: 8})[text]
        assert max(draft.token_ids) < 55
        assert draft.logprobs is None or draft.logprobs.shape == (8, 55)
    text.token_ids.append(55)
    with pytest.raises(ConfigError, match="token id 55, but the draft model has ids 0 to 54"):
        proposer.propose({text: 1})
    text.token_ids[-1] = 54
    assert len(proposer.propose({text: 3})[text].token_ids) == 3  # nothing was spoilt by it


@pytest.mark.parametrize(
    "settings",
    [{"num_ids": 0}, {"num_ids": 62}, {"block_size": 0}, {"max_step_tokens": 0}, {"kv_memory": 10}],
    ids=str,
)
def test_settings_without_meaning_are_refused(settings: dict[str, int], random_gpt: Make) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=name):
        DraftModel(random_gpt(), **settings)


# Draft and target together


def check(target: GPT, text: Text, draft: Draft) -> tuple[Guessed, mx.array]:
    """Return the row to verify and its logits, from the whole text without a cache."""
    ids = text.token_ids + draft.token_ids
    logits = target(mx.array([ids]), CausalAttend(target.config.context))[0]
    n = text.prompt_length
    row = Guessed(text.params, text.token_ids[:n], text.token_ids[n:], draft)
    return row, logits[len(text.token_ids) - 1 :]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6])
def test_greedy_texts_are_those_of_the_plain_loop(count: int, random_gpt: Make) -> None:
    """Also past the window, with a draft that is the target, or another model."""
    rng = np.random.Generator(np.random.Philox(key=count))
    target = random_gpt(max_seq_len=16)
    for guesser, always in ((target, True), (random_gpt(seed=0, n_layer=1), False)):
        proposer = DraftModel(guesser, block_size=4)
        texts = [text_of(i, random_ids(rng, 1 + 3 * i), temperature=0) for i in range(5)]
        goal = 20
        while live := [t for t in texts if t.generated < goal]:
            drafts = proposer.propose(dict.fromkeys(live, count))
            rows = [check(target, text, drafts[text]) for text in live]
            got = verify([row for row, _ in rows], mx.concatenate([x for _, x in rows]))
            for text, tokens in zip(live, got, strict=True):
                text.token_ids += tokens
                assert not always or len(tokens) == count + 1
        for text in texts:
            params = SamplingParams(temperature=0, max_tokens=goal)
            plain = generate_plain(target, text.token_ids[: text.prompt_length], params)
            end = text.prompt_length + goal
            assert text.token_ids[text.prompt_length : end] == [t.token_id for t in plain]


@pytest.mark.slow
def test_the_first_three_tokens_have_the_distribution_of_the_target(random_gpt: Make) -> None:
    """Two real networks over five ids against all 125 texts; the share of guesses kept as well."""
    settings = {"temperature": 0.9, "top_k": 4, "top_p": 0.95}
    params = SamplingParams(**settings)
    target = random_gpt(seed=1, vocab_size=5)
    guesser = random_gpt(seed=2, vocab_size=5, n_layer=1)
    prompt = [3, 1]
    expected, draft_law = (
        np.array(
            [[p([])[a] * p([a])[b] * p([a, b]) for b in range(5)] for a in range(5)]
        )
        for p in (
            lambda text, m=model: filtered(np.array(logits_after(m, prompt + text)), params)[0]
            for model in (target, guesser)
        )
    )  # fmt: skip
    assert 0.5 * np.abs(expected - draft_law).sum() > 0.2
    written, kept, count = [], 0, 4000
    for begin in range(0, count, 500):
        proposer = DraftModel(guesser)
        texts = [text_of(begin + i, prompt, **settings) for i in range(500)]
        while live := [t for t in texts if t.generated < 3]:
            drafts = proposer.propose(dict.fromkeys(live, 2))
            ids = mx.array([t.token_ids + drafts[t].token_ids for t in live if t.generated == 0])
            rows = []
            if live[0].generated == 0:  # all of one length: at once
                logits = target(ids)[:, 1:].reshape(-1, 5)
                rows = [check_row(t, drafts[t]) for t in live]
            else:
                pairs = [check(target, t, drafts[t]) for t in live]
                rows, logits = [r for r, _ in pairs], mx.concatenate([x for _, x in pairs])
            for text, tokens in zip(live, verify(rows, logits), strict=True):
                if text.generated == 0:
                    kept += len(tokens) > 1
                text.token_ids += tokens
        written += [t.token_ids[2:5] for t in texts]
    statistic, limit = chi_square(np.array(written), expected)
    assert statistic < limit
    share = np.minimum(expected.sum((1, 2)), draft_law.sum((1, 2))).sum()
    assert kept / count == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / count))


def check_row(text: Text, draft: Draft) -> Guessed:
    n = text.prompt_length
    return Guessed(text.params, text.token_ids[:n], text.token_ids[n:], draft)
