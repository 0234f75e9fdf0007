"""What a request can do, and what can go wrong around it."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams, generate_plain
from mlxgpt.infer.engine import Completion, Engine, EngineSettings, Output
from mlxgpt.infer.speculative import Draft, NGram
from mlxgpt.model import GPT, kv_bytes_per_token

Make = Callable[..., GPT]
GREEDY = SamplingParams(temperature=0, max_tokens=8)


class Letters:
    """A decoder: id 3 is "d", and so on; what `finish` gives is a bar."""

    def push(self, token_id: int) -> str:
        return chr(ord("a") + token_id)

    def finish(self) -> str:
        return "|"


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return np.random.Generator(np.random.Philox(key=seed)).integers(0, 61, length).tolist()


def plain(model: GPT, prompt: list[int], params: SamplingParams, **more: Any) -> list[int]:
    return [t.token_id for t in generate_plain(model, prompt, params, **more)]


def outcome(engine: Engine) -> dict[tuple[int, int], Completion]:
    """Step until nothing is left; return everything by request and choice."""
    done: dict[tuple[int, int], Completion] = {}
    while engine.active:
        for output in engine.step():
            key = output.request_id, output.choice
            done.setdefault(key, Completion(*key, 0)).take(output, 0.0)
    return done


def is_empty(engine: Engine) -> bool:
    """Whether no block is held but by the prefix index."""
    s = engine.statistics
    return s.blocks_used == 0 and s.blocks_shared == 0


class Oracle:
    """A proposer that guesses what the model will say, save for every `wrong`-th token."""

    draws = False
    num_ids = None
    nbytes = 0

    def __init__(self, model: GPT, wrong: int = 0) -> None:
        self.model, self.wrong = model, wrong

    def propose(self, wanted: Any) -> dict[Any, Draft]:
        drafts = {}
        for text, count in wanted.items():
            params = SamplingParams(temperature=0, max_tokens=count)
            tokens = plain(self.model, text.token_ids, params)
            if self.wrong:
                at = text.generated % self.wrong
                tokens = [(t + 1) % 61 if j == at else t for j, t in enumerate(tokens)]
            drafts[text] = Draft(tokens, None)
        return drafts

    def forget(self, sequence: Any) -> None:
        pass


@pytest.mark.parametrize("count", [0, 1, 2, 6, 9])
@pytest.mark.parametrize("wrong", [0, 3])
def test_a_block_of_accepted_guesses_ends_where_the_text_ends(
    count: int, wrong: int, random_gpt: Make
) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(5, seed=18)
    whole = plain(model, prompt, SamplingParams(temperature=0, max_tokens=40))
    engine = Engine(
        model, proposer=Oracle(model, wrong), settings=EngineSettings(adapt_draft=False)
    )
    (got,) = engine.generate([prompt], SamplingParams(temperature=0, max_tokens=count))
    assert (got.token_ids, got.finish_reason) == (whole[:count], "length")
    assert engine.statistics.generated_tokens == count
    for place in range(1, 9):  # a stop id as first, second, ... token of a block
        stop = whole[place]
        engine = Engine(model, stop_ids=[stop], proposer=Oracle(model, wrong))
        (got,) = engine.generate([prompt], SamplingParams(temperature=0, max_tokens=40))
        assert got.token_ids == whole[: whole.index(stop) + 1]
        assert got.finish_reason == "stop"
        assert is_empty(engine)


@pytest.mark.parametrize("drafted", [False, True])
def test_a_stop_string_ends_the_text_before_it(drafted: bool, random_gpt: Make) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(5, seed=18)
    whole = plain(model, prompt, SamplingParams(temperature=0, max_tokens=30))
    text = "".join(chr(ord("a") + t) for t in whole)
    for begin in (1, 4, 11):
        stop = text[begin : begin + 3]
        engine = Engine(model, decoder=Letters, proposer=Oracle(model) if drafted else None)
        params = SamplingParams(temperature=0, max_tokens=30, stop=(stop, "not there"))
        (got,) = engine.generate([prompt], params)
        assert got.text == text[: text.index(stop)]
        assert got.finish_reason == "stop"
        assert got.token_ids == whole[: text.index(stop) + 3]
        assert is_empty(engine)
    engine = Engine(model, decoder=Letters)
    params = SamplingParams(temperature=0, max_tokens=30, stop=(text[-1] + "?",))
    (got,) = engine.generate([prompt], params)
    assert (got.text, got.finish_reason) == (text + "|", "length")  # what was held back comes


def test_stop_strings_need_a_decoder(random_gpt: Make) -> None:
    with pytest.raises(ConfigError, match="decoder"):
        Engine(random_gpt()).add([1], SamplingParams(stop=("x",)))


def test_the_loop_outlives_its_requests(random_gpt: Make) -> None:
    """All rows end in one step; a first token that ends the text; the only row leaves."""
    model = random_gpt(max_seq_len=64)
    prompt = prompt_of(5)
    whole = plain(model, prompt, GREEDY)
    engine = Engine(model, stop_ids=[whole[0]])
    assert [c.token_ids for c in engine.generate([prompt] * 3, GREEDY)] == [whole[:1]] * 3
    engine = Engine(model)
    for _ in range(2):
        request = engine.add(prompt, GREEDY)
        engine.step()
        engine.abort(request)
        engine.abort(request)
        engine.abort(request + 100)
        (last,) = engine.step()
        assert (last.request_id, last.finish_reason) == (request, "abort")
        assert not engine.active
        assert engine.step() == []
        assert is_empty(engine)
        request = engine.add(prompt, SamplingParams(max_tokens=0))
        assert [o.finish_reason for o in engine.step()] == ["length"]
        (got,) = engine.generate([prompt], GREEDY)
        assert got.token_ids == whole


@pytest.mark.parametrize("block_size", [1, 3, 4, 16])
def test_the_same_prompt_again_and_again(block_size: int, random_gpt: Make) -> None:
    """Also where it fills its blocks exactly: one token is always computed."""
    model = random_gpt(max_seq_len=128)
    engine = Engine(model, settings=EngineSettings(block_size=block_size))
    for length in (2 * block_size, 2 * block_size + 1, 2 * block_size - 1, 48):
        prompt = prompt_of(length, seed=length)
        whole = plain(model, prompt, GREEDY)
        for _ in range(3):
            assert engine.generate([prompt], GREEDY)[0].token_ids == whole
    assert engine.statistics.shared_tokens > 0


def test_new_weights_do_not_meet_old_keys(random_gpt: Make) -> None:
    """The same prompt before and after the weights were changed in place, and back."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(40)
    first, second = model.weights(), random_gpt(seed=1, max_seq_len=64).weights()
    engine = Engine(model)
    seen = []
    for weights in (first, second, first):
        model.set_weights(weights)
        got = engine.generate([prompt], GREEDY)[0].token_ids
        assert got == plain(model, prompt, GREEDY)
        seen.append(got)
    assert seen[0] == seen[2] != seen[1]


def test_a_text_of_the_old_weights_leaves_nothing_to_those_of_the_new(random_gpt: Make) -> None:
    """It is still being written when they change, and fills blocks afterwards."""
    model, prompt = random_gpt(max_seq_len=128), prompt_of(20)
    engine = Engine(model, settings=EngineSettings(block_size=4))
    old = engine.add(prompt, SamplingParams(temperature=0, max_tokens=40))
    written: list[int] = []
    while len(written) < 10:
        written += [t for o in engine.step() for t in o.token_ids]
    model.set_weights(random_gpt(seed=1, max_seq_len=128).weights())
    while len(written) < 30:
        written += [t for o in engine.step() for t in o.token_ids]
    longer = prompt + written[:25]
    new = engine.add(longer, GREEDY)
    assert outcome(engine)[new, 0].token_ids == plain(model, longer, GREEDY)
    assert old != new


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_several_texts_of_one_prompt(temperature: float, random_gpt: Make) -> None:
    """Each is what a request of its own, with its seed, would get; the prompt is computed once."""
    model, prompt = random_gpt(max_seq_len=64), prompt_of(37)
    params = SamplingParams(temperature=temperature, max_tokens=12, seed=4, n=5)
    for rows in (2, 8):  # with and without a place for all of them
        engine = Engine(model, settings=EngineSettings(max_num_seqs=rows))
        got = engine.generate([prompt], params)
        expected = [plain(model, prompt, params.choice(i)) for i in range(5)]
        assert [c.choice for c in got] == [0, 1, 2, 3, 4]
        assert [c.token_ids for c in got] == expected
        assert len({tuple(e) for e in expected}) == (5 if temperature else 1)
        assert is_empty(engine)
    assert engine.statistics.computed_tokens <= 37 + 5 * 12
    assert engine.statistics.prompt_tokens == 37


def test_logprobs_are_those_of_the_plain_loop(random_gpt: Make) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(9)
    params = SamplingParams(temperature=0.7, max_tokens=6, seed=2, logprobs=3)
    expected = [t.logprobs for t in generate_plain(model, prompt, params)]
    engine = Engine(model, proposer=NGram())
    (got,) = engine.generate([prompt], params)
    assert got.logprobs is not None
    assert len(got.logprobs) == 6
    for mine, plain_one in zip(got.logprobs, expected, strict=True):
        assert plain_one is not None
        assert mine.logprob == pytest.approx(plain_one.logprob, abs=1e-4)
        assert [i for i, _ in mine.top] == [i for i, _ in plain_one.top]


def test_streams_do_not_disturb_each_other(random_gpt: Make) -> None:
    model = random_gpt(max_seq_len=64)
    engine = Engine(model, decoder=Letters)
    prompts = [prompt_of(5, seed=i) for i in range(3)]
    streams = [engine.stream(p, GREEDY) for p in prompts]
    got: list[list[int]] = [[], [], []]
    reasons: list[str | None] = [None] * 3
    while not all(reasons):
        for i, stream in enumerate(streams):
            if reasons[i] is None:
                output: Output = next(stream)
                got[i] += output.token_ids
                reasons[i] = output.finish_reason
    assert got == [plain(model, p, GREEDY) for p in prompts]
    stream = engine.stream(prompts[0], GREEDY)
    next(stream)
    stream.close()  # whoever stops listening ends the request
    assert not engine.active
    assert is_empty(engine)


def test_what_can_never_fit_is_refused_with_the_numbers(random_gpt: Make) -> None:
    model = random_gpt(max_seq_len=512)
    memory = 64 * kv_bytes_per_token(model.config)
    engine = Engine(model, settings=EngineSettings(kv_memory=memory, block_size=4))
    with pytest.raises(ConfigError, match=r"(?s)90.*64|64.*90"):
        engine.add(prompt_of(80), SamplingParams(max_tokens=10))
    assert not engine.active
    prompts = [prompt_of(5), prompt_of(80)]
    with pytest.raises(ConfigError, match="64"):
        engine.generate(prompts, SamplingParams(max_tokens=10))
    assert not engine.active  # nothing of the first is left
    with pytest.raises(ConfigError, match="less than one block"):
        Engine(model, settings=EngineSettings(kv_memory=100))


def test_a_fault_in_the_middle_leaves_no_block_behind(random_gpt: Make) -> None:
    model = random_gpt(max_seq_len=64)

    class Failing(Letters):
        def push(self, token_id: int) -> str:
            raise RuntimeError("a fault")

    engine = Engine(model, decoder=Failing)
    with pytest.raises(RuntimeError, match="a fault"):
        engine.generate([prompt_of(9), prompt_of(12)], GREEDY)
    assert not engine.active
    engine._decoder = None
    assert engine.generate([prompt_of(9)], GREEDY)[0].token_ids == plain(
        model, prompt_of(9), GREEDY
    )
    assert is_empty(engine)


@pytest.mark.parametrize("fault", [RuntimeError, KeyboardInterrupt])
def test_a_fault_of_one_request_is_told_to_the_others(
    fault: type[BaseException], random_gpt: Make
) -> None:
    """They end with "abort", streams too; who waits is served, and so is whoever comes later."""
    model = random_gpt(max_seq_len=64)

    class Failing(Letters):
        def push(self, token_id: int) -> str:
            raise fault

    engine = Engine(model, decoder=Letters, settings=EngineSettings(max_num_seqs=3))
    stream = engine.stream(prompt_of(5), GREEDY)
    next(stream)
    other = engine.add(prompt_of(6), SamplingParams(temperature=0, max_tokens=30))
    engine.add(prompt_of(7), GREEDY, decoder=Failing)
    waits = engine.add(prompt_of(8), GREEDY)
    with pytest.raises(fault):
        for _ in range(5):
            engine.step()
    assert [o.finish_reason for o in stream][-1] == "abort"
    done = outcome(engine)
    assert done[other, 0].finish_reason == "abort"
    assert done[waits, 0].token_ids == plain(model, prompt_of(8), GREEDY)
    assert is_empty(engine)


def test_what_was_moved_in_a_step_that_failed_is_not_found_again(
    random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(40)
    engine = Engine(model, settings=EngineSettings(block_size=4))
    engine.generate([prompt], GREEDY)
    engine.add(prompt_of(30, seed=2), GREEDY)

    def failing(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(engine._runner.pool, "copy", failing)
        with pytest.raises(MemoryError):
            engine.step()
    assert engine.statistics.blocks_kept == 0
    outcome(engine)
    assert engine.generate([prompt], GREEDY)[0].token_ids == plain(model, prompt, GREEDY)


def test_a_stream_ends_when_somebody_else_took_its_end(random_gpt: Make) -> None:
    engine = Engine(random_gpt(max_seq_len=64))
    stream = engine.stream(prompt_of(5), GREEDY)
    next(stream)
    outcome(engine)
    assert list(stream) == []


def test_what_lies_in_free_blocks_and_tails_does_not_matter(random_gpt: Make) -> None:
    model = random_gpt(max_seq_len=128)
    memory = 256 * kv_bytes_per_token(model.config)
    settings = EngineSettings(kv_memory=memory, block_size=4, prefix_sharing=False)
    engine = Engine(model, settings=settings)
    prompts = [prompt_of(n, seed=n) for n in (1, 7, 30)]
    expected = [plain(model, p, GREEDY) for p in prompts]
    for _ in range(2):
        assert [c.token_ids for c in engine.generate(prompts, GREEDY)] == expected
        for segment in engine._runner.pool.arrays:
            for layer in range(len(segment)):
                segment[layer] = mx.full(segment[layer].shape, 1e4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_ids": 0},
        {"num_ids": 62},
        {"settings": {"block_size": 0}},
        {"settings": {"max_num_seqs": 0}},
        {"settings": {"num_draft_tokens": 0}},
    ],
)
def test_settings_without_meaning_are_refused(wrong: dict[str, Any], random_gpt: Make) -> None:
    with pytest.raises(ConfigError):
        if "settings" in wrong:
            wrong["settings"] = EngineSettings(**wrong["settings"])
        Engine(random_gpt(), **wrong)


def test_prompts_without_meaning_are_refused(random_gpt: Make) -> None:
    engine = Engine(random_gpt(), num_ids=60)
    for prompt in ([], [60], [-1], "text", [1.5], ["a"]):
        with pytest.raises(ConfigError):
            engine.add(prompt, GREEDY)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="logit_bias"):
        engine.add([1], SamplingParams(logit_bias={60: 1.0}))
    with pytest.raises(ConfigError, match="ids"):
        engine.generate("text", GREEDY)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="ids"):
        engine.generate([1, 2], GREEDY)  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="more than this machine has"):
        Engine(random_gpt(), settings=EngineSettings(kv_memory=10**18))
    with pytest.raises(ConfigError, match="2 prompts"):
        engine.generate([[1], [2]], [GREEDY])


def test_padding_ids_are_never_written(random_gpt: Make) -> None:
    model, prompt = random_gpt(max_seq_len=64), prompt_of(6)
    params = SamplingParams(temperature=2.0, max_tokens=30, seed=1)
    got = Engine(model, num_ids=8).generate([[3, 4]], params)[0].token_ids
    assert max(got) < 8
    assert got == plain(model, [3, 4], params, num_ids=8)
    assert max(plain(model, prompt, params)) >= 8
