"""`mlxgpt generate --prompts`: a file of prompts in, a file of results out."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from generation_runs import (
    Run,
    chat_text,
    read_lines,
    running,
    save_with_template,
    small_tokenizer,
    write_lines,
    writing_only,
    written,
)
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import read_json, write_json
from mlxgpt.cli.writers import EngineWriter
from mlxgpt.infer import generate
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT, RopeScaling
from mlxgpt.text import Tokenizer

PARAMS = SamplingParams(temperature=0.8, max_tokens=8)
TOKENS = ("--tokens", 8)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with running("generate", monkeypatch, capsys) as run:
        yield run


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return small_tokenizer()


@pytest.fixture(scope="module")
def network(random_gpt: Callable[..., GPT], tokenizer: Tokenizer) -> GPT:
    return random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=128)


@pytest.fixture(scope="module")
def model(network: GPT, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_template(tmp_path_factory.mktemp("model") / "m", network, tokenizer)


def test_each_line_is_written_as_if_it_were_alone(
    run: Run, model: Path, network: GPT, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    asked = [
        {"prompt": "what", "id": "first", "tag": {"deep": ["ä", None]}},
        {"messages": [{"role": "user", "content": "is it"}], "max_tokens": 5},
        {"prompt": "user", "temperature": 0, "seed": 3},
        {"prompt": "", "n": 3, "top_k": 4},
        {"prompt": "it", "max_tokens": 0},
        *({"prompt": "what is " * i} for i in range(1, 6)),
    ]
    file, out = write_lines(tmp_path / "p.jsonl", asked), tmp_path / "o.jsonl"
    ran = run(model, "--prompts", file, "--out", out, "--seed", 5, "--max-batch", 3, *TOKENS)
    assert (ran.code, ran.out) == (0, "")
    results = read_lines(out.read_text())
    assert [(r["line"], r["choice"]) for r in results] == [
        *((1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 2)),
        *((i, 0) for i in range(5, 11)),
    ]
    for result in results:
        line = asked[result["line"] - 1]
        own = {name: line[name] for name in ("max_tokens", "temperature", "top_k") if name in line}
        params = replace(PARAMS, **own, seed=result["seed"])
        text = chat_text("is it") if "messages" in line else line["prompt"] or "<|endoftext|>"
        ids = tokenizer.encode(text, "all")
        text = written(network, tokenizer, ids, params)
        assert result["text"] == text
        assert result["prompt_tokens"] == len(ids)
        assert {**result, **line, "seed": 0} == {**result, "seed": 0}
        assert result["generated_tokens"] <= params.max_tokens
        ended = "length" if result["generated_tokens"] == params.max_tokens else "stop"
        assert result["finish_reason"] in (ended, "stop")
    assert results[2]["seed"] == 3
    assert len({r["seed"] for r in results}) == len(results)
    assert results[6]["generated_tokens"] == 0
    assert "[10 prompts; " in ran.err
    for batch in (1, 32):
        again = run(
            model, "--prompts", file, "--out", "-", "--seed", 5, "--max-batch", batch, *TOKENS
        )
        assert again.out == out.read_text()
    other = run(model, "--prompts", file, "--out", "-", "--seed", 6, *TOKENS)
    assert other.out != out.read_text()


def test_the_seed_is_0_unless_given_and_one_result_can_be_had_alone(
    run: Run, model: Path, tmp_path: Path
) -> None:
    file = write_lines(tmp_path / "p.jsonl", [{"prompt": "what"}, {"prompt": "what", "n": 2}])
    ran = run(model, "--prompts", file, "--out", "-", *TOKENS)
    assert ran.out == run(model, "--prompts", file, "--out", "-", "--seed", 0, *TOKENS).out
    for result in read_lines(ran.out):
        alone = run(model, "-p", "what", "--seed", result["seed"], *TOKENS)
        assert alone.out == "what" + result["text"] + "\n"


def test_prompts_may_be_questions(run: Run, model: Path, tmp_path: Path) -> None:
    user = {"role": "user", "content": "is it"}
    mine, yours = {"role": "system", "content": "be it"}, {"role": "system", "content": "user"}
    forms = [{"prompt": "is it"}, {"messages": [user]}, {"messages": [mine, user]}]
    lines = [form | {"seed": 1} for form in [*forms, {"messages": [yours, user]}]]
    file = write_lines(tmp_path / "p.jsonl", lines)
    ran = run(model, "--prompts", file, "--out", "-", "--chat", "--system", "be it", *TOKENS)
    results = read_lines(ran.out)
    assert len({r["text"] for r in results[:3]}) == 1
    assert results[0]["prompt_tokens"] == results[2]["prompt_tokens"]
    assert results[3]["text"] != results[0]["text"]
    plain = read_lines(run(model, "--prompts", file, "--out", "-", *TOKENS).out)
    assert plain[0]["text"] != results[0]["text"]
    assert plain[1]["text"] != plain[2]["text"] == results[2]["text"]


def test_log_probabilities(
    run: Run, model: Path, network: GPT, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    lines = [
        {"prompt": "what"},
        {"prompt": "is", "logprobs": 0},
        {"prompt": "it", "logprobs": None},
    ]
    file = write_lines(tmp_path / "p.jsonl", lines)
    ran = run(model, "--prompts", file, "--out", "-", "--logprobs", 2, *TOKENS)
    first, second, third = read_lines(ran.out)
    assert "logprobs" not in third or third["logprobs"] is None
    for result, count in ((first, 2), (second, 0)):
        ids = tokenizer.encode(result["prompt"])
        params = replace(PARAMS, seed=result["seed"], logprobs=count)
        tokens = list(generate(network, ids, params))
        assert [each["id"] for each in result["logprobs"]] == [t.token_id for t in tokens]
        for each, token in zip(result["logprobs"], tokens, strict=True):
            assert token.logprobs is not None
            assert each["logprob"] == pytest.approx(token.logprobs.logprob, abs=1e-4)
            raw = tokenizer.token_bytes(token.token_id)
            assert each["token"] == raw.decode("utf-8", "replace")
            assert [top["id"] for top in each["top"]] == [i for i, _ in token.logprobs.top]
            assert len(each["top"]) == count


def test_an_answer_ends_with_its_turn(
    run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = save_with_template(tmp_path / "m", writing_only("<|im_end|>", random_gpt), tokenizer)
    lines = [{"prompt": "a"}, {"messages": [{"role": "user", "content": "a"}]}]
    file = write_lines(tmp_path / "p.jsonl", lines)
    results = read_lines(run(model, "--prompts", file, "--out", "-", *TOKENS).out)
    assert [r["generated_tokens"] for r in results] == [8, 1]
    assert [r["finish_reason"] for r in results] == ["length", "stop"]
    assert [r["text"] for r in results] == ["", ""]


def test_text_goes_on_from_the_prompt_with_its_space(
    run: Run, shared_data: Path, tmp_path: Path
) -> None:
    model = shared_data / "checkpoints" / "stories260K-hf"
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[0].content }}")
    once = [{"prompt": "Once"}, {"messages": [{"role": "user", "content": "Once"}]}]
    file = write_lines(tmp_path / "p.jsonl", [*once, *once])
    ran = run(model, "--prompts", file, "--out", "-", "--temperature", 0, "--tokens", 4,
              "--chat-template", template)  # fmt: skip
    texts = [result["text"] for result in read_lines(ran.out)]
    assert [text[:5] for text in texts][::2] == [" upon", " upon"]
    assert not texts[1].startswith(" ")


def test_a_run_goes_on_where_it_was_cut(run: Run, model: Path, tmp_path: Path) -> None:
    lines = [{"prompt": "what is " * i, "max_tokens": 9 - i} for i in range(1, 8)]
    file, out = write_lines(tmp_path / "p.jsonl", lines), tmp_path / "o.jsonl"
    arguments = (model, "--prompts", file, "--out", out, "--max-batch", 3)
    assert run(*arguments).code == 0
    whole = out.read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 1, len(whole)):
        out.write_bytes(whole[:size])
        count = whole[:size].count(b"\n")
        ran = run(*arguments)
        assert (ran.code, out.read_bytes()) == (0, whole)
        assert (f"{count} of 7 prompts were done before and are kept" in ran.err) == (count > 0)
    assert "[0 prompts and 7 kept; 0 tokens" in ran.err
    write_lines(file, [*lines, {"prompt": "more"}])
    assert run(*arguments).code == 0
    assert out.read_bytes().startswith(whole)
    assert len(read_lines(out.read_text())) == 8


@pytest.mark.parametrize("change", ["model", "seed", "tokens", "prompt", "notes", "half a note"])
def test_results_of_anything_else_are_refused_and_stay(
    change: str, run: Run, model: Path, tmp_path: Path, tokenizer: Tokenizer,
    random_gpt: Callable[..., GPT],
) -> None:  # fmt: skip
    file = write_lines(tmp_path / "p.jsonl", [{"prompt": "what"}, {"prompt": "is"}])
    out = tmp_path / "o.jsonl"
    arguments: list[Any] = ["--prompts", file, "--out", out, *TOKENS]
    assert run(model, *arguments).code == 0
    other = model
    if change == "model":
        network = random_gpt(1, vocab_size=tokenizer.vocab_size, max_seq_len=128)
        other = save_with_template(tmp_path / "other", network, tokenizer)
    elif change == "seed":
        arguments += ["--seed", 1]
    elif change == "tokens":
        arguments += ["--tokens", 9]
    elif change == "prompt":
        write_lines(file, [{"prompt": "what"}, {"prompt": "it"}])
    else:
        out.write_text("buy milk" + "\n" * (change == "notes"))
    before = out.read_bytes()
    reason = run(other, *arguments).refused()
    assert "another" in reason or "no result" in reason
    assert out.read_bytes() == before


def test_what_a_draft_model_draws_is_told_from_what_is_drawn_without(
    run: Run, model: Path, tmp_path: Path, random_gpt: Callable[..., GPT], tokenizer: Tokenizer
) -> None:
    small = random_gpt(3, vocab_size=tokenizer.vocab_size, n_layer=1)
    draft = save_with_template(tmp_path / "draft", small, tokenizer)
    file = write_lines(tmp_path / "p.jsonl", [{"prompt": "what"}, {"prompt": "is"}])
    out = tmp_path / "o.jsonl"
    arguments = (model, "--prompts", file, "--out", out, *TOKENS)
    assert run(*arguments, "--draft", draft).code == 0
    for other in ((), ("--draft", "ngram"), ("--draft", draft, "--num-draft-tokens", 2)):
        assert "other settings" in run(*arguments, *other).refused()
    assert run(*arguments, "--draft", draft).code == 0
    out.unlink()
    assert run(*arguments, "--temperature", 0, "--draft", draft).code == 0
    greedy = out.read_bytes()
    assert run(*arguments, "--temperature", 0).code == 0
    assert run(*arguments, "--temperature", 0, "--draft", "ngram").code == 0
    out.unlink()
    assert run(*arguments, "--temperature", 0).code == 0
    assert out.read_bytes() == greedy


def test_bad_lines_are_refused_before_anything_is_done(
    run: Run, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "o.jsonl"
    for bad, words in (
        ("{", "is not JSON"),
        ({"messages": [{"role": "user", "content": "forbidden"}]}, "not that"),
        ({"messages": ["a"]}, "must be an object with a 'role'"),
        ({"prompt": "a", "top_p": 2}, "'top_p'"),
    ):
        file = write_lines(tmp_path / "p.jsonl", [{"prompt": "good"}, bad])
        reason = run(model, "--prompts", file, "--out", out).refused()
        assert f"{file}, line 2" in reason
        assert words in reason
    assert "no prompts" in run(model, "--prompts", write_lines(file, []), "--out", out).refused()
    assert "none.jsonl" in run(model, "--prompts", tmp_path / "none.jsonl", "--out", out).refused()
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--prompts", "FILE"), "--prompts needs --out FILE"),
        (("--prompts", "FILE", "--out", "o", "-p", "a"), "give one of both"),
        (("--prompts", "FILE", "--out", "FILE"), "are one file"),
        (("--prompts", "FILE", "--out", "none/o"), "none/o"),
        (("--prompts", "FILE", "--out", "."), "is no regular file"),
        (("--prompts", "FILE", "--out", "o", "--system", "x"), "--system has no effect without"),
        (("--prompts", "FILE", "--out", "o", "--max-batch", "0"), "--max-batch"),
        (("--prompts", "FILE", "--out", "o", "--kv-bits", "8"), "does not go with --prompts"),
        (("--prompts", "FILE", "--out", "o", "--kv-memory", "2G"), "2GB or 2GiB"),
        (("-p", "a", "--out", "o"), "--out has no effect without --prompts"),
        (("-p", "a", "--max-batch", "4"), "--max-batch has no effect without --prompts"),
        (("-p", "a", "--logprobs", "4"), "--logprobs has no effect without --prompts"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    arguments: Sequence[str], reason: str, run: Run, model: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "FILE", [{"prompt": "a"}])
    assert reason in run(model, *arguments).refused()
    assert [p.name for p in tmp_path.iterdir()] == ["FILE"]


def test_prompts_that_can_never_fit_do_not_hold_up_the_others(
    run: Run, model: Path, tmp_path: Path
) -> None:
    lines = [{"prompt": "what"}, {"prompt": "what is it " * 200}, {"prompt": "is"}]
    file, out = write_lines(tmp_path / "p.jsonl", lines), tmp_path / "o.jsonl"
    arguments = (model, "--prompts", file, "--out", out, *TOKENS)
    ran = run(*arguments, "--kv-memory", "20kB")
    assert ran.code == 2
    assert "error: 1 of 3 prompts could not be served" in ran.err
    good, bad, also_good = read_lines(out.read_text())
    assert good["text"]
    assert also_good["text"]
    assert "tokens" in bad["error"]
    assert "text" not in bad
    ran = run(*arguments)
    assert ran.code == 0
    assert [r["text"] for r in read_lines(out.read_text())][::2] == [
        good["text"],
        also_good["text"],
    ]


def test_a_model_that_the_engine_does_not_run(
    run: Run, random_gpt: Callable[..., GPT], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    scaling = RopeScaling(rope_type="dynamic", factor=2.0, original_max_position_embeddings=64)
    network = random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=64, rope_scaling=scaling)
    model = save_with_template(tmp_path / "m", network, tokenizer)
    file = write_lines(tmp_path / "p.jsonl", [{"prompt": "what", "n": 2}, {"prompt": "is"}])
    ran = run(model, "--prompts", file, "--out", "-", *TOKENS)
    assert "note: prompts are written one after the other: " in ran.err
    for result in read_lines(ran.out):
        ids = tokenizer.encode(result["prompt"])
        expected = written(network, tokenizer, ids, replace(PARAMS, seed=result["seed"]))
        assert result["text"] == expected
    for option in (("--draft", "ngram"), ("--kv-memory", "1GB")):
        reason = run(model, "-p", "a", *option).refused()
        assert f"{option[0]} is not possible with {model}: its rotary positions" in reason


def test_a_model_of_another_library(
    run: Run, model: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    from mlx_lm.models import gpt2

    folder = tmp_path / "m"
    tokenizer.save(folder)
    sizes = {"n_ctx": 32, "n_positions": 32, "n_embd": 32, "n_head": 4, "n_layer": 2}
    config = {"model_type": "gpt2", "vocab_size": tokenizer.vocab_size, **sizes}
    write_json(folder / "config.json", config | {"layer_norm_epsilon": 1e-5})
    network = gpt2.Model(gpt2.ModelArgs.from_dict(read_json(folder / "config.json")))
    weights = tree_flatten(network.parameters())
    mx.save_safetensors(str(folder / "model.safetensors"), dict(weights))  # type: ignore[arg-type]
    lines = [{"prompt": "what"}, {"prompt": "ab" * 20}, {"prompt": "is", "max_tokens": 99}]
    file = write_lines(tmp_path / "p.jsonl", lines)
    ran = run(folder, "--prompts", file, "--out", "-", "--temperature", 0, *TOKENS)
    assert ran.code == 2
    assert "note: prompts are written one after the other: architecture 'gpt2'" in ran.err
    assert "1 of 3 prompts could not be served" in ran.err
    what, bad, to_the_end = read_lines(ran.out)
    assert what["generated_tokens"] == 8
    assert "takes 32 at most" in bad["error"]
    assert to_the_end["finish_reason"] == "length"
    assert to_the_end["generated_tokens"] == 33 - to_the_end["prompt_tokens"]
    alone = run(folder, "-p", "what", "--temperature", 0, *TOKENS)
    assert alone.out == "what" + what["text"] + "\n"
    for option in (("--draft", "ngram"), ("--kv-memory", "1GB"), ("--kv-bits", "8")):
        reason = run(folder, "-p", "what", *option).refused()
        assert f"{option[0]} is not possible with {folder}: architecture 'gpt2' is run by" in reason
    reason = run(model, "-p", "what", "--draft", folder).refused()
    assert f"{folder} cannot be a --draft: architecture 'gpt2' is run by mlx-lm" in reason


def test_ctrl_c_says_how_to_go_on(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_lines(tmp_path / "p.jsonl", [{"prompt": "a"}, {"prompt": "it", "max_tokens": 100}])
    out = tmp_path / "o.jsonl"
    step, steps = EngineWriter.step, 0

    def interrupted(writer: EngineWriter) -> list[Output]:
        nonlocal steps
        steps += 1
        if steps == 20:
            raise KeyboardInterrupt
        return step(writer)

    monkeypatch.setattr(EngineWriter, "step", interrupted)
    ran = run(model, "--prompts", file, "--out", out, *TOKENS)
    assert (ran.code, ran.out) == (130, "")
    assert "1 of 2 are done; the same command goes on" in ran.err
    assert ran.err.endswith("mlxgpt: interrupted\n")
    assert len(read_lines(out.read_text())) == 1


@pytest.mark.slow
def test_a_killed_run_that_goes_on_gives_the_bytes_of_one_that_was_not(
    model: Path, tmp_path: Path
) -> None:
    # Greedy: what is drawn in another batch may, rarely, be rounded over a border.
    lines = [
        {"prompt": "what is " * (i % 7 + 1), "max_tokens": 3 + i * 37 % 60, "temperature": 0}
        for i in range(60)
    ]
    file = write_lines(tmp_path / "p.jsonl", lines)

    def start(out: Path) -> subprocess.Popen[bytes]:
        command = "from mlxgpt.cli.app import main; main()"
        arguments = ["generate", str(model), "--prompts", str(file), "--out", str(out)]
        return subprocess.Popen(
            [sys.executable, "-c", command, *arguments, "--max-batch", "4"],
            stderr=subprocess.DEVNULL,
        )

    assert start(tmp_path / "whole.jsonl").wait() == 0
    killed, out = 0, tmp_path / "killed.jsonl"
    for lines_more in (1, 20, 25):
        process = start(out)
        before = out.read_bytes().count(b"\n") if out.exists() else 0
        while process.poll() is None:
            if out.exists() and out.read_bytes().count(b"\n") >= before + lines_more:
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.002)
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 2
    assert start(out).wait() == 0
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
