from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.infer import Generated, KVCache, SamplingParams, generate, generate_plain, kv_cache
from mlxgpt.infer.language_model import language_model
from mlxgpt.model import GPT, RopeScaling

Make = Callable[..., GPT]


def prompt_of(length: int) -> list[int]:
    return np.random.Generator(np.random.Philox(key=length)).integers(0, 61, length).tolist()


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 45])
@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {},
        {"temperature": 1.3, "top_k": 9, "top_p": 0.9, "min_p": 0.01},
        {"repetition_penalty": 1.2, "presence_penalty": 0.4, "frequency_penalty": 0.3},
        {"top_p": 0.9, "logit_bias": {3: 1.0}},
    ],
    ids=["greedy", "sampled", "filtered", "penalized", "top-p"],
)
def test_the_cache_changes_no_token(
    length: int, settings: dict[str, Any], random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a window of 16, prompts shorter and longer, over many edges of pieces and buffers."""
    import sys

    monkeypatch.setattr(sys.modules["mlxgpt.infer.language_model"], "PIECE", 7)
    monkeypatch.setattr(kv_cache, "_GROWTH", 5)
    model = random_gpt()
    params = SamplingParams(**settings, seed=length, max_tokens=25)
    fast = list(generate(model, prompt_of(length), params))
    assert fast == list(generate_plain(model, prompt_of(length), params))
    assert len({t.token_id for t in fast}) > 2


def test_a_text_ends_with_its_length_or_a_stop(random_gpt: Make) -> None:
    model, prompt = random_gpt(), prompt_of(5)
    for run in (generate, generate_plain):
        whole = [t.token_id for t in run(model, prompt, SamplingParams(max_tokens=30, seed=1))]
        assert len(whole) == 30
        for count in (0, 1, 2, 7):
            texts = list(run(model, prompt, SamplingParams(max_tokens=count, seed=1)))
            assert [t.token_id for t in texts] == whole[:count]
            reasons = [t.finish_reason for t in texts]
            assert reasons == [None] * (count - 1) + ["length"] * (count > 0)
        stop = whole[12]
        first = whole.index(stop)
        for stops in ([stop], {stop, 60 + 1}, frozenset([stop]), (stop,)):
            texts = list(run(model, prompt, SamplingParams(max_tokens=30, seed=1), stop_ids=stops))
            assert texts[-1] == Generated(stop, "stop")
            assert [t.token_id for t in texts] == whole[: first + 1]
        # a stop that is also the last token allowed is a stop
        limit = SamplingParams(max_tokens=first + 1, seed=1)
        assert list(run(model, prompt, limit, stop_ids=[stop]))[-1].finish_reason == "stop"


def test_padding_ids_are_never_drawn(random_gpt: Make) -> None:
    model = random_gpt(vocab_size=61, tie_embeddings=False)
    head = model.weights()["lm_head.weight"]
    loud = mx.where(mx.arange(61)[:, None] >= 50, head * 50, head * 0.01)
    model.set_weights({"lm_head.weight": loud})
    prompt = [1, 2, 3]
    for settings in ({"temperature": 0.0}, {}, {"top_k": 3}, {"top_p": 0.5}):
        params = SamplingParams(max_tokens=25, **settings)
        free = [t.token_id for t in generate(model, prompt, params)]
        assert max(free) >= 50
        held = list(generate(model, prompt, params, num_ids=50))
        assert max(t.token_id for t in held) < 50
        assert held == list(generate_plain(model, prompt, params, num_ids=50))


def test_the_seed_decides_the_text(random_gpt: Make) -> None:
    model = random_gpt()

    def text(seed: int) -> list[int]:
        params = SamplingParams(max_tokens=20, seed=seed)
        return [t.token_id for t in generate(model, [1], params)]

    one = text(3)
    mx.random.seed(17)
    assert text(3) == one
    assert text(4) != one


def test_draws_differ_from_token_to_token(random_gpt: Make) -> None:
    model = random_gpt(vocab_size=100, tie_embeddings=False)
    model.set_weights({"lm_head.weight": mx.zeros((100, 32))})
    params = SamplingParams(max_tokens=50, seed=3)
    ids = [t.token_id for t in generate(model, [1], params)]
    assert len(set(ids)) > 20


@pytest.mark.parametrize(
    ("prompt", "num_ids", "part"),
    [
        ([], None, "empty"),
        ([1, 61], None, "prompt token 1 is id 61"),
        ([-1], None, "prompt token 0 is id -1"),
        ([1, 2, 50], 50, "ids 0 to 49"),
        ([1], 62, "num_ids"),
        ([1], 0, "num_ids"),
    ],
)
def test_what_the_model_does_not_have_is_refused(
    prompt: list[int], num_ids: int | None, part: str, random_gpt: Make
) -> None:
    for run in (generate, generate_plain):
        with pytest.raises(ConfigError, match=part):
            list(run(random_gpt(), prompt, SamplingParams(), num_ids=num_ids))


def test_penalties_see_what_was_written(random_gpt: Make) -> None:
    """Against the formulas, over the logits of the whole text each time."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(6)
    settings = {"repetition_penalty": 1.5, "presence_penalty": 0.6, "frequency_penalty": 0.5}
    params = SamplingParams(temperature=0, max_tokens=20, **settings)
    liked = list(generate(model, prompt, params))[3].token_id
    params = replace(params, logit_bias={liked: -2.5})
    text: list[int] = []
    for token in generate(model, prompt, params):
        logits = np.array(model(mx.array([prompt + text]))[0, -1], dtype=np.float64)
        logits[liked] -= 2.5
        for i in {*prompt, *text}:
            logits[i] *= 1.5 if logits[i] <= 0 else 1 / 1.5
        for i in text:
            logits[i] -= 0.5
        for i in set(text):
            logits[i] -= 0.6
        assert token.token_id == logits.argmax()
        text.append(token.token_id)
    for name in (*settings, "logit_bias"):
        without = replace(params, **{name: getattr(SamplingParams(), name)})
        assert [t.token_id for t in generate(model, prompt, without)] != text, name


def test_log_probabilities_are_those_of_the_model(random_gpt: Make) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(6)
    params = SamplingParams(max_tokens=8, temperature=0.5, top_p=0.9, logprobs=4, seed=2)
    text: list[int] = []
    for token in generate(model, prompt, params):
        logits = np.array(model(mx.array([prompt + text]))[0, -1], dtype=np.float64)
        exact = logits - logits.max()
        exact -= np.log(np.exp(exact).sum())
        assert token.logprobs is not None
        assert token.logprobs.logprob == pytest.approx(exact[token.token_id], abs=1e-4)
        assert [i for i, _ in token.logprobs.top] == np.argsort(-exact)[:4].tolist()
        text.append(token.token_id)
    bare = replace(params, logprobs=None)
    assert [(t.token_id, t.logprobs) for t in generate(model, prompt, bare)] == [
        (i, None) for i in text
    ]
    own = list(generate(model, prompt, replace(params, logprobs=0)))
    assert all(t.logprobs is not None and t.logprobs.top == () for t in own)


def test_stop_ids_of_both_kinds_end_a_text(random_gpt: Make) -> None:
    model, prompt = random_gpt(), prompt_of(5)
    whole = [t.token_id for t in generate(model, prompt, SamplingParams(max_tokens=30, seed=1))]
    early, late = whole[4], next(i for i in whole[5:] if i not in whole[:5])
    for run in (generate, generate_plain):
        for given, own in (([early], [late]), ([late], [early]), ([], [early, late])):
            params = SamplingParams(max_tokens=30, seed=1, stop_ids=own)
            texts = list(run(model, prompt, params, stop_ids=given))
            assert [t.token_id for t in texts] == whole[: whole.index(early) + 1]
            assert texts[-1].finish_reason == "stop"


@pytest.mark.parametrize("settings", [{"n": 2}, {"stop": "."}, {"stop": ["a"], "n": 3}], ids=str)
def test_what_needs_the_engine_is_refused(settings: dict[str, Any], random_gpt: Make) -> None:
    for run in (generate, generate_plain):
        with pytest.raises(ConfigError, match="Engine"):
            list(run(random_gpt(), [1], SamplingParams(**settings)))


@pytest.mark.parametrize(
    ("settings", "ahead"),
    [({}, 1), ({"temperature": 0, "logprobs": 2}, 1), ({"presence_penalty": 0.5}, 0)],
    ids=str,
)
def test_the_next_token_is_computed_while_one_is_looked_at(
    settings: dict[str, Any], ahead: int, random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it depends on that one: then nobody waits for it before he has seen this one."""
    calls = 0
    plain = KVCache.__call__

    def counted(self: KVCache, layer: int, *arrays: mx.array) -> mx.array:
        nonlocal calls
        calls += layer == 0
        return plain(self, layer, *arrays)

    monkeypatch.setattr(KVCache, "__call__", counted)
    for count, _ in enumerate(
        generate(random_gpt(), [1], SamplingParams(max_tokens=6, **settings)), start=1
    ):
        assert calls == min(count + ahead, 6)


def test_the_reader_sets_the_pace(random_gpt: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever stops reading stops the work: at most one token is computed ahead."""
    calls = 0
    plain = KVCache.__call__

    def counted(self: KVCache, layer: int, *arrays: mx.array) -> mx.array:
        nonlocal calls
        calls += 1
        return plain(self, layer, *arrays)

    monkeypatch.setattr(KVCache, "__call__", counted)
    text = generate(random_gpt(), [1], SamplingParams(max_tokens=100))
    assert calls == 0
    for _token in range(3):
        next(text)
    assert calls <= 2 * 4


def test_a_prompt_is_one_piece_where_its_length_turns_every_token(
    random_gpt: Make,
) -> None:
    scaling = RopeScaling(rope_type="dynamic", factor=4.0, original_max_position_embeddings=16)
    model = random_gpt(max_seq_len=16, rope_scaling=scaling)
    assert model.config.context == 64
    ids = mx.array([[(i * i) % 61 for i in range(60)]])
    session = language_model(model).session()
    assert session.piece is None
    np.testing.assert_allclose(
        np.array(session.logits(ids)), np.array(model(ids)[:, -1]), atol=1e-5
    )
    pieces = language_model(model).session()
    pieces.feed(ids[:, :30])
    assert np.abs(np.array(pieces.logits(ids[:, 30:])) - np.array(model(ids)[:, -1])).max() > 1e-2
