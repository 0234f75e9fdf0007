"""`mlxgpt chat`: a conversation by pipe and at a terminal, and what Ctrl-C does to it."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from generation_runs import (
    Run,
    Typed,
    chat_text,
    running,
    save_with_template,
    small_tokenizer,
    writing_only,
    written,
)

from mlxgpt.checkpoint import save_model
from mlxgpt.cli.writers import EngineWriter
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer

GREEDY = ("--temperature", 0, "--tokens", 10)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with running("chat", monkeypatch, capsys) as run:
        yield run


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def network(random_gpt: Callable[..., GPT], tokenizer: Tokenizer) -> GPT:
    return random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=300)


@pytest.fixture(scope="module")
def model(network: GPT, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_template(tmp_path_factory.mktemp("model") / "m", network, tokenizer)


@pytest.fixture(scope="module")
def answer(network: GPT, tokenizer: Tokenizer) -> Callable[..., str]:
    """What the model answers, greedily, to the last of these words of user and model by turns."""

    def answer(*messages: str, system: str | None = None, most: int = 10) -> str:
        ids = tokenizer.encode(chat_text(*messages, system=system), "all")
        return written(network, tokenizer, ids, SamplingParams(temperature=0, max_tokens=most))

    return answer


Answer = Callable[..., str]


def test_each_answer_knows_what_was_said_before(run: Run, model: Path, answer: Answer) -> None:
    ran = run(model, *GREEDY, stdin=b"what\nis it\n\nuser\n")
    first = answer("what")
    second = answer("what", first, "is it")
    third = answer("what", first, "is it", second, "user")
    assert (ran.code, ran.out, ran.err) == (0, f"{first}\n{second}\n{third}\n", "")
    assert second != answer("is it")
    assert run(model, *GREEDY, "--draft", "ngram", stdin=b"what\nis it\n\nuser").out == ran.out


def test_commands_change_what_it_knows(run: Run, model: Path, answer: Answer) -> None:
    typed = ["what", "/reset", "is it", "/system be", "user", "/undo", "what", "//is", '"""/is"""']
    ran = run(model, *GREEDY, stdin="\n".join(typed).encode())
    alone = answer("is it")
    last = answer("is it", alone, "what", system="be")
    slash = answer("is it", alone, "what", last, "/is", system="be")
    expected = [answer("what"), alone, answer("is it", alone, "user", system="be"), last, slash]
    quoted = answer("is it", alone, "what", last, "/is", slash, "/is", system="be")
    assert ran.out == "".join(text + "\n" for text in [*expected, quoted])
    assert "forgot 1 turn\n" in ran.err
    assert "forgot 'user'\n" in ran.err


def test_the_system_message_and_several_lines(run: Run, model: Path, answer: Answer) -> None:
    ran = run(model, *GREEDY, "--system", "be it", stdin=b"is\\\nit\n/exit\nwhat\n")
    assert (ran.code, ran.out) == (0, answer("is\nit", system="be it") + "\n")


def test_an_answer_ends_with_its_turn(
    run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = save_with_template(tmp_path / "m", writing_only("<|im_end|>", random_gpt), tokenizer)
    ran = run(model, "--stats", stdin=b"what\nis it\n")
    assert (ran.code, ran.out) == (0, "\n\n")
    assert ran.err.count(" 1 written") == 2


def test_answers_can_be_had_again_and_differ_when_asked_again(run: Run, model: Path) -> None:
    typed = b"what\n/undo\nwhat\n/reset\nwhat\n"
    first = run(model, "--seed", 1, "--tokens", 20, stdin=typed)
    assert len(set(first.out.split("\n"))) > 2
    assert run(model, "--seed", 1, "--tokens", 20, stdin=typed).out == first.out
    assert run(model, "--seed", 2, "--tokens", 20, stdin=typed).out != first.out


def test_the_oldest_turns_are_left_out_with_one_note(
    run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    network = random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=64)
    model = save_with_template(tmp_path / "m", network, tokenizer)
    asked = ["what is it", "it is what", "user", "system", "is"]
    ran = run(model, *GREEDY, "--system", "be", "--stats", stdin="\n".join(asked).encode())
    said: list[str] = []
    answers = []
    for question in asked:
        said.append(question)
        while len(ids := tokenizer.encode(chat_text(*said, system="be"), "all")) > 64 - 10:
            del said[:2]
        params = SamplingParams(temperature=0, max_tokens=10)
        answers.append(written(network, tokenizer, ids, params))
        said.append(answers[-1])
    assert len(said) < 2 * len(asked)
    assert ran.out == "".join(text + "\n" for text in answers)
    assert ran.err.count("note: the conversation is longer than the 64 tokens") == 1
    assert f"[{len(ids)} prompt tokens" in ran.err


def test_a_question_that_is_too_long_alone_is_told_of(
    run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    network = random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=16)
    model = save_with_template(tmp_path / "m", network, tokenizer)
    ran = run(model, *GREEDY, stdin=b"what is it what is it what is it\n")
    assert ran.code == 0
    assert "note: the question alone has" in ran.err


def test_in_a_pipe_a_mistake_ends_it(run: Run, model: Path, answer: Answer) -> None:
    for typed, words in (
        (b"what\n/rest\nis\n", "/rest is no command; did you mean '/reset'"),
        (b"what\nforbidden\nis\n", "not that"),
        (b"what\n\xff\nis\n", "not UTF-8"),
    ):
        ran = run(model, *GREEDY, stdin=typed)
        assert (ran.code, ran.out) == (2, answer("what") + "\n")
        assert ran.err.startswith("mlxgpt: error: ")
        assert words in ran.err
        assert ran.err.count("\n") == 1


def test_at_a_terminal_a_mistake_is_said_and_it_goes_on(
    run: Run, model: Path, answer: Answer
) -> None:
    ran = run(
        model, *GREEDY, stdin=Typed(["/rest", "forbidden", "\udcff", "/system forbidden", "what"])
    )
    assert (ran.code, ran.out) == (0, answer("what") + "\n")
    assert "error: /rest is no command" in ran.err
    assert ran.err.count("not that") == 2
    assert "error: what was typed is not UTF-8" in ran.err
    assert "/help says what there is" in ran.err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--tokens", "0"), "--tokens must be at least 1"),
        (("--num-draft-tokens", "3"), "--num-draft-tokens has no effect without --draft"),
        (("--top-p", "2"), "'top_p'"),
        (("--system", "forbidden"), "not that"),
        (("--chat-template", "none"), "cannot read none"),
        (("--kv-memory", "many"), "--kv-memory wants bytes"),
        (("--draft", "none"), "none does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[str, ...], reason: str, run: Run, model: Path
) -> None:
    assert reason in run(model, *arguments).refused()


def test_it_needs_a_template(
    run: Run, network: GPT, tokenizer: Tokenizer, tmp_path: Path, answer: Answer
) -> None:
    save_model(tmp_path / "m", network, tokenizer)
    assert "has no chat template: give one with" in run(tmp_path / "m").refused()
    file = tmp_path / "own.jinja"
    file.write_text("Q: {{ messages[-1].content }}\nA:{{ bos_token }}")
    ran = run(tmp_path / "m", *GREEDY, "--chat-template", file, stdin=b"is it\n")
    ids = tokenizer.encode("Q: is it\nA:<|endoftext|>", "all")
    params = SamplingParams(temperature=0, max_tokens=10)
    assert ran.out == written(network, tokenizer, ids, params) + "\n"


def test_the_report_comes_when_it_is_asked_for(run: Run, model: Path) -> None:
    ran = run(model, *GREEDY, "--stats", stdin=b"what\n")
    assert ran.err.startswith("[")
    assert " written; first after " in ran.err
    assert run(model, *GREEDY, "--no-stats", stdin=b"what\n").err == ""


def test_ctrl_c_at_the_prompt_first_says_how_to_leave(
    run: Run, model: Path, answer: Answer
) -> None:
    interrupt = KeyboardInterrupt
    ran = run(model, *GREEDY, stdin=Typed([interrupt, "what", interrupt, interrupt, "never"]))
    assert (ran.code, ran.out) == (0, answer("what") + "\n")
    assert ran.err.count("(Ctrl-C again, Ctrl-D or /exit leaves)") == 2
    ran = run(model, *GREEDY, stdin=Typed(["wh\\", interrupt, "what"]))
    assert ran.out == answer("what") + "\n"


class _Interrupted:
    """`EngineWriter.step` that is interrupted at the n-th step, by a signal or out of the blue."""

    def __init__(self, at: int, by_signal: bool) -> None:
        self._at, self._by_signal, self.steps = at, by_signal, 0
        self.writers: list[EngineWriter] = []
        self._step = EngineWriter.step

    def step(self, writer: EngineWriter) -> list[Output]:
        self.steps += 1
        if writer not in self.writers:
            self.writers.append(writer)
        if self.steps == self._at:
            if not self._by_signal:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)
        return self._step(writer)


@pytest.mark.parametrize("by_signal", [True, False])
def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(
    by_signal: bool, run: Run, model: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted = _Interrupted(6, by_signal)
    monkeypatch.setattr(EngineWriter, "step", lambda writer: interrupted.step(writer))
    ran = run(model, *GREEDY, "--stats", stdin=Typed(["what", "is it"]))
    assert ran.code == 0
    first, second = ran.out.split("\n")[:2]
    assert answer("what").startswith(first)
    assert 0 < len(first) < len(answer("what"))
    assert second == answer("what", first, "is it")
    assert "; stopped]" in ran.err
    assert len(interrupted.writers) == (1 if by_signal else 2)  # a torn one is not used again


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_question_stopped_before_its_first_word_is_forgotten(
    by_signal: bool, run: Run, model: Path, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(writer: EngineWriter) -> list[Output]:
        if not steps:
            steps.append(1)
            if not by_signal:
                raise KeyboardInterrupt
            signal.raise_signal(signal.SIGINT)
            return []  # as while a long prompt is taken in
        return step(writer)

    step, steps = EngineWriter.step, list[int]()
    monkeypatch.setattr(EngineWriter, "step", nothing)
    ran = run(model, *GREEDY, stdin=Typed(["what", "is it"]))
    assert (ran.code, ran.out) == (0, f"\n{answer('is it')}\n")
    assert "the question is forgotten" in ran.err


def test_ctrl_c_in_a_pipe_ends_it(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = _Interrupted(3, by_signal=True)
    monkeypatch.setattr(EngineWriter, "step", lambda writer: interrupted.step(writer))
    ran = run(model, *GREEDY, stdin=b"what\nis it\n")
    assert ran.code == 130
    assert ran.err.endswith("mlxgpt: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_at_a_real_terminal(model: Path) -> None:
    ours, theirs = pty.openpty()
    command = "from mlxgpt.cli.app import main; main()"
    arguments = ["chat", str(model), "--tokens", "1000000", "--temperature", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", command, *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    seen = b""

    def wait_for(text: bytes, seconds: float = 30) -> None:
        nonlocal seen
        end = time.monotonic() + seconds
        while text not in seen:
            assert time.monotonic() < end, seen[-2000:]
            seen += os.read(ours, 65536)
        seen = seen[seen.index(text) + len(text) :]

    try:
        wait_for(b"> ")
        os.write(ours, b"what\n")
        wait_for(b"\r\n")  # the question, echoed
        while len(seen) < 20:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        wait_for(b"; stopped]")
        wait_for(b"> ")
        process.send_signal(signal.SIGINT)
        wait_for(b"(Ctrl-C again, Ctrl-D or /exit leaves)")
        os.write(ours, b"/undo\n")
        wait_for(b"forgot 'what'")
        os.write(ours, b"/exit\n")
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        os.close(ours)
