"""The plain loop with the face of the engine, and what both are followed by."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from generation_runs import small_tokenizer

from mlxgpt.checkpoint import open_checkpoint, save_model
from mlxgpt.cli.acceleration import Acceleration, WriterPlan, shares
from mlxgpt.cli.writers import EngineWriter, PlainWriter, Writer, follow
from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.language_model import GPTSession, SlidingGPT
from mlxgpt.infer.paged import Pool
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer

PARAMS = SamplingParams(temperature=0.8, max_tokens=6, seed=2)


class ShortModel(SlidingGPT):
    """A model as another library brings it, whose texts have an end."""

    longest = 12  # type: ignore[assignment]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def network(random_gpt: Callable[..., GPT], tokenizer: Tokenizer) -> GPT:
    return random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=64)


def writer_of(kind: str, network: GPT, tokenizer: Tokenizer) -> Writer:
    return {"engine": EngineWriter, "plain": PlainWriter}[kind](network, tokenizer)


def outputs(writer: Writer) -> list[Output]:
    found = []
    while writer.active:
        found += writer.step()
    return found


def text(found: list[Output], request: int, choice: int = 0) -> str:
    mine = [o for o in found if (o.request_id, o.choice) == (request, choice)]
    assert [o.finish_reason is None for o in mine] == [True] * (len(mine) - 1) + [False]
    return "".join(output.text for output in mine)


@pytest.mark.parametrize("kind", ["engine", "plain"])
def test_each_text_is_that_of_the_plain_loop(kind: str, network: GPT, tokenizer: Tokenizer) -> None:
    writer = writer_of(kind, network, tokenizer)
    asked = [("what", PARAMS), ("is", replace(PARAMS, n=2)), ("it", replace(PARAMS, max_tokens=0))]
    asked.append(("user", replace(PARAMS, logprobs=2, repetition_penalty=1.5)))
    requests = [writer.add(tokenizer.encode(prompt), params) for prompt, params in asked]
    assert len(set(requests)) == len(asked)
    found = outputs(writer)
    for request, (prompt, params) in zip(requests, asked, strict=True):
        for choice in range(params.n):
            own = params.choice(choice)
            tokens = list(generate(network, tokenizer.encode(prompt), own))
            assert text(found, request, choice) == tokenizer.decode([t.token_id for t in tokens])
            mine = [o for o in found if (o.request_id, o.choice) == (request, choice)]
            assert [i for o in mine for i in o.token_ids] == [t.token_id for t in tokens]
            got = [each for o in mine for each in o.logprobs or []]
            assert [g.logprob for g in got] == pytest.approx(
                [t.logprobs.logprob for t in tokens if t.logprobs], abs=1e-4
            )
            assert len(got) == (len(tokens) if params.logprobs else 0)
    assert writer.statistics.requests == 4
    assert writer.statistics.generated_tokens == 24


@pytest.mark.parametrize("kind", ["engine", "plain"])
def test_a_stop_text_that_is_cut_in_two_is_found_and_not_shown(
    kind: str, network: GPT, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode("what")
    params = replace(PARAMS, max_tokens=30)
    whole = tokenizer.decode([t.token_id for t in generate(network, ids, params)])
    place = next(i for i in range(3, len(whole)) if whole[i : i + 3] not in whole[: i + 2])
    writer = writer_of(kind, network, tokenizer)
    request = writer.add(ids, replace(params, stop=(whole[place : place + 3], "never")))
    found = outputs(writer)
    assert text(found, request) == whole[:place]
    assert found[-1].finish_reason == "stop"


@pytest.mark.parametrize("kind", ["engine", "plain"])
def test_a_request_that_is_left_early_is_gone(
    kind: str, network: GPT, tokenizer: Tokenizer
) -> None:
    writer = writer_of(kind, network, tokenizer)
    ids = tokenizer.encode("what")
    for output in follow(writer, writer.add(ids, replace(PARAMS, n=2)), 2):
        assert output.finish_reason is None
        break
    assert not writer.active
    seen: list[int] = []
    for output in follow(writer, writer.add(ids, PARAMS), 1, lambda: len(seen) >= 3):
        seen.extend(output.token_ids)
    assert not writer.active
    expected = [t.token_id for t in generate(network, ids, PARAMS)]
    assert seen == expected[: len(seen)]
    assert 3 <= len(seen) < 6
    whole = list(follow(writer, writer.add(ids, PARAMS), 1))
    assert [i for output in whole for i in output.token_ids] == expected


def test_a_text_ends_where_its_model_ends(network: GPT, tokenizer: Tokenizer) -> None:
    writer = PlainWriter(ShortModel(network), tokenizer)
    ids = tokenizer.encode("what is it")
    request = writer.add(ids, replace(PARAMS, max_tokens=50, stop=("never",)))
    found = outputs(writer)
    assert len(found) == 13 - len(ids) < 50
    assert found[-1].finish_reason == "length"
    tokens = generate(network, ids, replace(PARAMS, max_tokens=len(found)))
    assert text(found, request) == tokenizer.decode([t.token_id for t in tokens])
    with pytest.raises(ConfigError, match="the prompt has 13 tokens; this model takes 12 at most"):
        writer.add([1] * 13, PARAMS)


class _Spaced:
    """A tokenizer by which a text loses the space at its beginning."""

    vocab_size = 61

    class Decoder:
        def __init__(self) -> None:
            self._begun = False

        def push(self, token_id: int) -> str:
            begun, self._begun = self._begun, True
            return f" {token_id}" if begun else str(token_id)

        def finish(self) -> str:
            return ""

    def stream_decoder(self, skip_special: bool) -> "_Spaced.Decoder":
        return self.Decoder()


@pytest.mark.parametrize("kind", ["engine", "plain"])
def test_what_goes_on_from_a_text_keeps_its_space(
    kind: str, random_gpt: Callable[..., GPT]
) -> None:
    writer = writer_of(kind, random_gpt(), _Spaced())  # type: ignore[arg-type]
    going_on = [writer.add([1, 2], replace(PARAMS, n=2), 2), writer.add([3], PARAMS, 3)]
    answer = writer.add([1, 2], PARAMS)
    found = outputs(writer)
    assert text(found, going_on[0]).startswith(" ")
    assert text(found, going_on[0], 1).startswith(" ")
    assert text(found, going_on[1]).startswith(" ")
    assert not text(found, answer).startswith(" ")


def test_two_models_share_the_memory_so_that_both_hold_as_many_tokens(
    random_gpt: Callable[..., GPT],
) -> None:
    large, small = random_gpt(n_layer=6), random_gpt(n_layer=2)
    for_large, for_small = shares(8000, large, small, 16)
    assert (for_large, for_small) == (6000, 2000)
    for_large, for_small = shares(None, large, small, 16)
    assert for_large is not None
    assert for_small is not None
    assert for_large > 2 * for_small > 0
    sizes = [Pool.for_model(m, 16).bytes_per_block for m in (large, small)]
    assert for_large / sizes[0] == pytest.approx(for_small / sizes[1], rel=1e-3)


def test_the_short_model_is_one_of_the_plain_loop(network: GPT) -> None:
    session = ShortModel(network).session()
    assert isinstance(session, GPTSession)
    assert session.logits(mx.array([[1]])).shape == (1, network.config.vocab)


def test_a_single_text_on_a_gpu_is_written_by_the_loop_that_looks_ahead(
    network: GPT, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, network, tokenizer)
    checkpoint = open_checkpoint(str(tmp_path))

    def writer(alone: bool, **wanted: Any) -> Writer:
        plan = WriterPlan(Acceleration(**wanted), "model", checkpoint, tokenizer)
        return plan.writer(network, alone=alone)

    assert isinstance(writer(alone=True), EngineWriter)  # these tests run on a CPU
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.DeviceType.gpu))
    assert isinstance(writer(alone=True), PlainWriter)
    assert isinstance(writer(alone=False), EngineWriter)
    assert isinstance(writer(alone=True, draft="ngram"), EngineWriter)
    assert isinstance(writer(alone=True, kv_memory=2**24), EngineWriter)
