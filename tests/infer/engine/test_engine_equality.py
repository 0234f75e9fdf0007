"""Whatever the batch, the cache and the drafts: each request gets what the plain loop writes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from mlxgpt.infer import SamplingParams, generate_plain
from mlxgpt.infer.engine import Engine, EngineSettings
from mlxgpt.infer.speculative import DraftModel, NGram, Proposer
from mlxgpt.model import GPT, kv_bytes_per_token

Make = Callable[..., GPT]
VOCAB = 61


@dataclass(frozen=True)
class Asked:
    prompt: list[int]
    params: SamplingParams


def requests(count: int, seed: int, **settings: Any) -> list[Asked]:
    """Prompts of 1 to 60 tokens, a third with one of three beginnings, a third repetitive."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    beginnings = [rng.integers(0, VOCAB, n).tolist() for n in (7, 16, 33)]
    asked = []
    for i in range(count):
        prompt = rng.integers(0, VOCAB, rng.integers(1, 28)).tolist()
        if i % 3 == 0:
            prompt = beginnings[rng.integers(3)] + prompt
        elif i % 3 == 1:
            prompt = (prompt[:5] * 9)[: int(rng.integers(6, 40))]
        params = SamplingParams(max_tokens=int(rng.integers(1, 20)), seed=i, **settings)
        asked.append(Asked(prompt, params))
    return asked


def plain(model: GPT, asked: Asked) -> tuple[list[int], str | None]:
    tokens = list(generate_plain(model, asked.prompt, asked.params))
    return [t.token_id for t in tokens], tokens[-1].finish_reason


def served(
    engine: Engine, asked: list[Asked], seed: int, abort: float = 0.0
) -> dict[int, tuple[list[int], str | None]]:
    """Let the requests join at random moments, and some leave; return what each got."""
    rng = np.random.Generator(np.random.Philox(key=seed + 1000))
    waiting, ids = list(enumerate(asked)), {}
    got: dict[int, list[int]] = {}
    reasons: dict[int, str | None] = {}
    while waiting or engine.active:
        while waiting and (rng.random() < 0.5 or not engine.active):
            i, each = waiting.pop(0)
            request = engine.add(each.prompt, each.params)
            ids[request] = i
            got[i] = []
        if abort and rng.random() < abort:
            running = [r for r, i in ids.items() if i not in reasons]
            if running:
                engine.abort(running[int(rng.integers(len(running)))])
        for output in engine.step():
            got[ids[output.request_id]] += output.token_ids
            if output.finish_reason:
                reasons[ids[output.request_id]] = output.finish_reason
    return {i: (got[i], reasons[i]) for i in got}


def settings_of(model: GPT, tokens: int, **more: Any) -> EngineSettings:
    """An engine's settings with room for so many tokens."""
    return EngineSettings(kv_memory=tokens * kv_bytes_per_token(model.config), **more)


ROOMS: dict[str, dict[str, Any]] = {
    "roomy": {"tokens": 4096},
    "tight": {"tokens": 96, "block_size": 4, "max_step_tokens": 24, "max_num_seqs": 8},
    "no sharing": {"tokens": 160, "block_size": 3, "max_step_tokens": 7, "prefix_sharing": False},
    "single tokens": {"tokens": 90, "block_size": 1, "max_step_tokens": 5, "max_num_seqs": 3},
}
WINDOW = {"max_seq_len": 24}
LONG = {"max_seq_len": 128}


def proposer(kind: str, make: Make, model: GPT) -> Proposer | None:
    if kind == "ngram":
        return NGram()
    if kind == "draft":
        return DraftModel(make(seed=0, n_layer=1, max_seq_len=model.config.max_seq_len))
    return None


@pytest.mark.parametrize("shape", [LONG, WINDOW], ids=["long", "window"])
@pytest.mark.parametrize("drafts", ["none", "ngram", "draft"])
@pytest.mark.parametrize("room", ROOMS)
def test_greedy_requests_get_the_tokens_of_the_plain_loop(
    room: str, drafts: str, shape: dict[str, int], random_gpt: Make
) -> None:
    model = random_gpt(**shape)
    asked = requests(18, seed=3, temperature=0)
    engine = Engine(
        model,
        proposer=proposer(drafts, random_gpt, model),
        settings=settings_of(model, **ROOMS[room]),
    )
    got = served(engine, asked, seed=3)
    for i, each in enumerate(asked):
        assert got[i] == plain(model, each), i
    if drafts == "ngram":
        assert engine.statistics.accepted_tokens > 0
    if room == "tight" and shape is LONG:
        assert engine.statistics.preemptions > 0
    if room == "roomy":
        assert engine.statistics.shared_tokens > 0


@pytest.mark.parametrize("drafts", ["none", "ngram"])
@pytest.mark.parametrize("room", ROOMS)
def test_sampled_requests_get_the_tokens_of_the_plain_loop(
    room: str, drafts: str, random_gpt: Make
) -> None:
    """Their randomness is a function of their seed and the place in the text alone."""
    model = random_gpt(**LONG)
    penalties = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "frequency_penalty": 0.1}
    bias = {"logit_bias": {5: 1.5}}
    asked = (
        requests(6, seed=5, temperature=0.8, top_p=0.95)
        + requests(6, seed=6, temperature=1.3, top_k=12, min_p=0.02, **penalties)
        + requests(6, seed=7, temperature=0, **penalties, **bias)
    )
    engine = Engine(
        model,
        proposer=proposer(drafts, random_gpt, model),
        settings=settings_of(model, **ROOMS[room]),
    )
    got = served(engine, asked, seed=4)
    for i, each in enumerate(asked):
        assert got[i] == plain(model, each), i


@pytest.mark.slow
@pytest.mark.parametrize("drafts", ["none", "ngram", "draft"])
@pytest.mark.parametrize("shape", [LONG, WINDOW], ids=["long", "window"])
def test_two_hundred_requests_that_come_and_go(
    drafts: str, shape: dict[str, int], random_gpt: Make
) -> None:
    model = random_gpt(**shape)
    asked = requests(200, seed=11, temperature=0)
    settings = settings_of(model, 128, block_size=4, max_step_tokens=40, max_num_seqs=12)
    engine = Engine(model, proposer=proposer(drafts, random_gpt, model), settings=settings)
    got = served(engine, asked, seed=11, abort=0.05)
    aborted = 0
    for i, each in enumerate(asked):
        tokens, reason = plain(model, each)
        if got[i][1] == "abort":
            aborted += 1
            assert got[i][0] == tokens[: len(got[i][0])], i
        else:
            assert got[i] == (tokens, reason), i
    statistics = engine.statistics
    assert 3 < aborted < 60
    assert statistics.shared_tokens > 0
    assert statistics.blocks_used == 0
    assert (statistics.drafted_tokens > 0) == (drafts != "none")
    if shape is LONG:
        assert statistics.preemptions > 0
