"""Faults that other engines have had: at the end of a text, in the counts, after a mistake."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt import seeding
from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams, generate_plain
from mlxgpt.infer.engine import Engine, EngineSettings
from mlxgpt.infer.speculative import DraftModel
from mlxgpt.model import GPT, kv_bytes_per_token
from mlxgpt.model.lora import adapted

Make = Callable[..., GPT]


class Letters:
    """A decoder: id 3 is "d", and so on."""

    def push(self, token_id: int) -> str:
        return chr(ord("a") + token_id)

    def finish(self) -> str:
        return ""


class Failing(Letters):
    """A decoder that fails at its n-th token."""

    def __init__(self, at: int = 1) -> None:
        self.left = at

    def push(self, token_id: int) -> str:
        self.left -= 1
        if not self.left:
            raise RuntimeError("a fault")
        return super().push(token_id)


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return np.random.Generator(np.random.Philox(key=seed)).integers(0, 61, length).tolist()


def plain(model: GPT, prompt: list[int], params: SamplingParams, **more: Any) -> list[int]:
    return [t.token_id for t in generate_plain(model, prompt, params, **more)]


def all_guessed(model: GPT, count: int, **more: Any) -> Engine:
    """An engine whose every guess is right, `count` of them in each step."""
    settings = EngineSettings(num_draft_tokens=count, adapt_draft=False)
    return Engine(model, proposer=DraftModel(model), settings=settings, **more)


def every_block_is_free(engine: Engine) -> bool:
    """Whether all blocks are free, save for those that only the prefix index keeps."""
    kept = engine.statistics.blocks_kept
    return engine._blocks.available + kept == engine._blocks.capacity


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_stop_among_guesses_that_are_right_is_the_last_token(
    count: int, random_gpt: Make
) -> None:
    """At each place of a block: what comes after it in the block is not written, nor counted."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(5, seed=18)
    greedy = SamplingParams(temperature=0, max_tokens=12, presence_penalty=100)
    whole = plain(model, prompt, greedy)
    assert len(set(whole)) == 12, "each token stands in one place only"
    text = "".join(Letters().push(t) for t in whole)
    for place in range(1, 7):
        by_id = all_guessed(model, count, stop_ids=[whole[place]])
        (got,) = by_id.generate([prompt], greedy)
        assert (got.token_ids, got.finish_reason) == (whole[: place + 1], "stop")
        by_text = all_guessed(model, count, decoder=Letters)
        params = replace(greedy, stop=(text[place : place + 2],))
        (stopped,) = by_text.generate([prompt], params)
        assert (stopped.text, stopped.token_ids) == (text[:place], whole[: place + 2])
        assert stopped.finish_reason == "stop"
        for engine, tokens in ((by_id, got.token_ids), (by_text, stopped.token_ids)):
            done = engine.statistics
            assert done.generated_tokens == len(tokens)
            # the first token comes after the prompt, without a guess
            assert done.accepted_tokens <= len(tokens) - 1
            assert done.accepted_tokens > 0
            assert every_block_is_free(engine)


@pytest.mark.parametrize("most", [1, 2, 6, 7])
def test_the_cache_holds_the_text_and_no_guess_beyond_it(most: int, random_gpt: Make) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(5, seed=18)
    params = SamplingParams(temperature=0, max_tokens=most)
    engine = all_guessed(model, 5)
    engine.add(prompt, params)
    written: list[int] = []
    while engine.active:
        written += [t for output in engine.step() for t in output.token_ids]
        for text in engine._scheduler.running:
            assert text.token_ids == prompt + written
            assert text.table.length == len(text.token_ids) - 1
    assert written == plain(model, prompt, params)
    assert engine.statistics.generated_tokens == most


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"seed": 3},
        {"seed": 3, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4},
    ],
    ids=["greedy", "sampled", "penalized"],
)
def test_what_is_computed_again_is_neither_shown_nor_counted_again(
    settings: dict[str, Any], random_gpt: Make
) -> None:
    """Two requests in six blocks of four tokens, less than both need."""
    model, prompts = random_gpt(max_seq_len=64), [prompt_of(5, seed=18), prompt_of(8, seed=16)]
    params = SamplingParams(max_tokens=12, **settings)
    memory = 24 * kv_bytes_per_token(model.config)
    engine = Engine(model, decoder=Letters, settings=EngineSettings(kv_memory=memory, block_size=4))
    for prompt in prompts:
        engine.add(prompt, params)
    tokens: list[list[int]] = [[], []]
    texts = ["", ""]
    while engine.active:
        for output in engine.step():
            tokens[output.request_id] += output.token_ids
            texts[output.request_id] += output.text
    assert tokens == [plain(model, prompt, params) for prompt in prompts]
    assert min(len(set(each)) for each in tokens) > 3, "texts in which an error would be seen"
    assert texts == ["".join(Letters().push(t) for t in each) for each in tokens]
    done = engine.statistics
    assert done.preemptions > 0
    assert done.computed_tokens > 5 + 8 + 2 * 11  # some of it twice
    assert (done.prompt_tokens, done.generated_tokens) == (5 + 8, 2 * 12)


def test_a_fault_ends_all_texts_of_its_request(random_gpt: Make) -> None:
    """Also those that have only just begun, or were to begin in the step that failed."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(9, seed=18)
    several = SamplingParams(temperature=0, max_tokens=6, n=3)
    for rows in (2, 8):
        engine = Engine(model, settings=EngineSettings(max_num_seqs=rows, block_size=4))
        made = iter([Letters(), Failing(), Letters()])
        engine.add(prompt, several, decoder=lambda made=made: next(made))
        with pytest.raises(RuntimeError, match="a fault"):
            engine.step()
        assert {(o.choice, o.finish_reason) for o in engine.step()} >= {(0, "abort"), (1, "abort")}
        assert not engine.active
        assert every_block_is_free(engine)
        expected = plain(model, prompt, several.choice(0))
        assert [c.token_ids for c in engine.generate([prompt], several)] == [expected] * 3


@pytest.mark.parametrize("block_size", [1, 3, 16])
def test_requests_that_leave_anywhere_leave_no_block(block_size: int, random_gpt: Make) -> None:
    """In the queue, in their prompt, while they are written, by a stop id, by a fault."""
    model = random_gpt(n_layer=1, vocab_size=20, max_seq_len=64)
    rng = np.random.Generator(np.random.Philox(key=block_size))
    settings = EngineSettings(
        kv_memory=96 * kv_bytes_per_token(model.config),
        block_size=block_size,
        max_step_tokens=13,
        max_num_seqs=4,
    )
    engine = Engine(model, stop_ids=[3], settings=settings)
    requests: list[int] = []
    faults = 0
    while len(requests) < 50 or engine.active:
        if len(requests) < 50 and rng.random() < 0.6:
            prompt = [int(t) % 20 for t in prompt_of(int(rng.integers(1, 20)), len(requests) % 3)]
            params = SamplingParams(
                temperature=float(rng.integers(2)),
                max_tokens=int(rng.integers(1, 12)),
                n=int(rng.choice([1, 1, 3])),
                seed=len(requests),
            )
            at = int(rng.integers(1, 4)) if rng.random() < 0.1 else 10**6
            requests.append(engine.add(prompt, params, decoder=lambda at=at: Failing(at)))
        if requests and rng.random() < 0.2:  # often one that is still waiting, or has ended
            engine.abort(requests[-int(rng.integers(1, 1 + min(8, len(requests))))])
        try:
            engine.step()
        except RuntimeError:
            faults += 1
    assert faults
    assert engine.statistics.blocks_used == 0
    assert every_block_is_free(engine)


def test_a_draft_model_over_other_ids_is_refused(random_gpt: Make) -> None:
    """Ids of padding may differ in number: both models are cut to those of the tokenizer."""
    model = random_gpt(vocab_size=64, tie_embeddings=False, max_seq_len=64)
    guesser = random_gpt(seed=3, n_layer=1, vocab_size=80, tie_embeddings=False, max_seq_len=64)
    for wrong in (None, 60, 62):
        with pytest.raises(ConfigError, match=rf"among {wrong or 80} ids, the model writes 61"):
            Engine(model, num_ids=61, proposer=DraftModel(guesser, num_ids=wrong))
    prompts = [prompt_of(4, seed=1), prompt_of(20, seed=1)]
    settings = EngineSettings(num_draft_tokens=4, adapt_draft=False)
    for own in (guesser, model):
        engine = Engine(model, num_ids=61, proposer=DraftModel(own, num_ids=61), settings=settings)
        greedy = SamplingParams(temperature=0, max_tokens=20)
        expected = [plain(model, prompt, greedy, num_ids=61) for prompt in prompts]
        assert [c.token_ids for c in engine.generate(prompts, greedy)] == expected
        hot = SamplingParams(temperature=3.0, max_tokens=20)
        assert all(max(c.token_ids) < 61 for c in engine.generate(prompts, hot))
        assert engine.statistics.drafted_tokens > 0


def test_an_adapter_in_the_place_of_another_meets_no_keys_of_it(random_gpt: Make) -> None:
    """The same prompt without an adapter, with one, with another in its place, and back."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(33)
    attention = model.layers[0].self_attn
    without = attention.k_proj

    def with_adapter(seed: int) -> Any:
        a, b = (
            mx.random.normal(shape, key=seeding.key(seed, name))
            for shape, name in (((32, 2), "a"), ((2, 16), "b"))
        )
        return adapted(without, a, b, 1.0)

    one, other = with_adapter(1), with_adapter(2)
    engine = Engine(model, settings=EngineSettings(block_size=4))
    params = SamplingParams(temperature=0, max_tokens=8)
    seen = []
    for module in (without, one, other, without, one):
        attention.k_proj = module
        for _ in range(2):
            got = engine.generate([prompt], params)[0].token_ids
            assert got == plain(model, prompt, params)
        seen.append(got)
    assert seen[0] != seen[1] != seen[2] != seen[0]
    assert engine.statistics.shared_tokens > 0
