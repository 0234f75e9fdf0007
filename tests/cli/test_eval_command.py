"""`mlxgpt eval`: what it prints of a text."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from eval_runs import SIZE, TEXT, Run, put_around, running, save_plain

from mlxgpt.checkpoint import load, load_tokenizer, open_checkpoint, write_json
from mlxgpt.checkpoint.adapters import Adapter, LowRank, attach, write_adapter
from mlxgpt.infer import Score, score
from mlxgpt.model import GPT


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with running(monkeypatch, capsys) as function:
        yield function


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, random_gpt: Callable[..., GPT]) -> Path:
    return save_plain(tmp_path_factory.mktemp("plain"), random_gpt)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, random_gpt: Callable[..., GPT]) -> Path:
    """The same, whose tokenizer puts `<|endoftext|>` before a text."""
    path = save_plain(tmp_path_factory.mktemp("begun"), random_gpt)
    return put_around(path, "<|endoftext|>", "$A")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "cat.txt"
    path.write_bytes(TEXT.encode())
    return path


def test_json_holds_what_score_gives(run: Run, plain: Path, file: Path) -> None:
    model, tokenizer = load(plain)
    ids = tokenizer.encode(TEXT)
    expected = score(model, ids, context=12, stride=5)
    found = run(plain, "--text", file, "--context", 12, "--stride", 5, "--json").facts()
    assert found["tokens"] == len(ids) - 1 == expected.num_tokens
    assert found["bytes"] == SIZE - 1, "the first letter follows nothing and is not scored"
    assert found["begins_with"] is None
    assert found["nll"] == pytest.approx(expected.nll, rel=1e-6)
    assert found["perplexity"] == pytest.approx(math.exp(expected.nll / expected.num_tokens))
    assert found["nats_per_token"] == pytest.approx(expected.nll / expected.num_tokens)
    assert found["bits_per_byte"] == pytest.approx(expected.nll / math.log(2) / (SIZE - 1))
    assert (found["context"], found["stride"]) == (12, 5)
    assert (found["model"], found["text"]) == (str(plain), str(file))
    assert found["tok_per_sec"] == pytest.approx(found["tokens"] / found["seconds"])


def test_batches_change_no_figure(
    run: Run, plain: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []

    def recorded(*arguments: Any, **settings: Any) -> Score:
        used.append(settings["batch_size"])
        return score(*arguments, **settings)

    monkeypatch.setattr("mlxgpt.infer.score", recorded)
    given: list[list[object]] = [[], ["--batch", 1], ["--batch", 3]]
    found = [run(plain, "--text", file, "--json", *batch).facts()["nll"] for batch in given]
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)
    assert used == [None, 1, 3]


def test_an_adapter_is_part_of_the_model(
    run: Run, plain: Path, file: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    a, b = (mx.random.normal(shape, key=mx.random.key(1)) for shape in ((32, 2), (2, 32)))
    change = LowRank(a=a, b=b, scale=0.5)
    adapter = Adapter(
        fine_tune_type="lora",
        modules={f"model.layers.{i}.self_attn.q_proj": change for i in range(2)},
    )
    write_adapter(tmp_path / "new", adapter, "mlx-lm")
    model, tokenizer = load(plain)
    attach(model, adapter)
    expected = score(model, tokenizer.encode(TEXT)).nll
    found = run(plain, "--text", file, "--adapter", tmp_path / "new", "--json").facts()
    assert found["nll"] == pytest.approx(expected, rel=1e-6)
    assert found["adapter"] == str(tmp_path / "new")
    without = run(plain, "--text", file, "--json").facts()
    assert without["adapter"] is None
    assert abs(without["nll"] - expected) > 0.1
    assert "does not exist" in run(plain, "--text", file, "--adapter", tmp_path / "no").refused()


def test_a_token_that_begins_every_text_lets_all_of_it_be_scored(
    run: Run, begun: Path, file: Path
) -> None:
    model, tokenizer = load(begun)
    ids = tokenizer.encode(TEXT, add_special_tokens=True)
    assert ids[0] == tokenizer.eot_id
    found = run(begun, "--text", file, "--json").facts()
    assert (found["tokens"], found["bytes"]) == (len(ids) - 1, SIZE)
    assert found["begins_with"] == "<|endoftext|>"
    assert found["nll"] == pytest.approx(score(model, ids).nll, rel=1e-6)
    assert (found["context"], found["stride"]) == (16, 8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_architecture_that_is_run_by_mlx_lm(
    run: Run, file: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    from mlx_lm.models import gpt2

    save_plain(tmp_path, random_gpt)
    ids = load_tokenizer(open_checkpoint(tmp_path)).encode(TEXT)
    assert len(ids) > 35
    config = {"model_type": "gpt2", "n_ctx": 24, "n_embd": 32, "n_head": 4, "n_layer": 2}
    config |= {"n_positions": 24, "layer_norm_epsilon": 1e-5, "vocab_size": max(ids) + 300}
    mx.random.seed(0)
    network = gpt2.Model(gpt2.ModelArgs.from_dict(config))
    write_json(tmp_path / "config.json", config)
    (tmp_path / "model.safetensors.index.json").unlink()
    network.save_weights(str(tmp_path / "model.safetensors"))
    expected = 0.0
    for begin, first, end in ((0, 1, 20), (15, 20, 35)):
        logits = network(mx.array([ids[begin:end]]))[0]
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        expected -= sum(logprobs[i - 1 - begin, ids[i]].item() for i in range(first, end))
    found = run(
        tmp_path, "--text", file, "--max-bytes", 36, "--context", 20, "--stride", 15, "--json"
    )
    assert found.facts()["nll"] == pytest.approx(expected, rel=1e-5)
    ran = run(tmp_path, "--text", file, "--context", 25)  # after the note of who runs it
    assert (ran.code, ran.out) == (2, "")
    assert "'context' must be at most 24" in ran.err


def test_the_table_says_the_figures_and_how_they_came_about(
    run: Run, plain: Path, begun: Path, file: Path
) -> None:
    for path, count, first in ((plain, 1, "not the first"), (begun, 0, "after <|endoftext|>")):
        found = run(path, "--text", file, "--json").facts()
        ran = run(path, "--text", file)
        assert (ran.code, ran.err) == (0, "")
        lines = ran.out.splitlines()
        rows = {line.split()[0]: line.split()[1] for line in lines}
        assert list(rows) == [
            "tokens", "bytes", "perplexity", "nats/token", "bits/byte", "context", "stride", "tok/s"
        ]  # fmt: skip
        assert rows["tokens"] == str(len(TEXT) - count)
        assert rows["bytes"] == str(SIZE - count)
        assert rows["perplexity"] == f"{found['perplexity']:,.4f}"
        assert rows["nats/token"] == f"{found['nats_per_token']:.4f}"
        assert rows["bits/byte"] == f"{found['bits_per_byte']:.4f}"
        assert (rows["context"], rows["stride"]) == ("16", "8")
        assert first in lines[0]
        assert str(file) in lines[0]


def test_the_beginning_of_a_text_ends_at_a_whole_character(
    run: Run, plain: Path, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole.txt", tmp_path / "part.txt"
    whole.write_bytes(TEXT.encode())
    cut = TEXT.encode().index("ï".encode()) + 1  # in the middle of it
    part.write_bytes(TEXT.encode()[: cut - 1])
    expected = run(plain, "--text", part, "--json").facts()
    for most in (cut - 1, cut):
        found = run(plain, "--text", whole, "--max-bytes", most, "--json").facts()
        assert found["bytes"] == expected["bytes"] == cut - 2
        assert found["nll"] == expected["nll"]
    assert run(plain, "--text", whole, "--max-bytes", cut + 1, "--json").facts()["bytes"] == cut
    for most in (SIZE, SIZE + 1, 10**9):
        found = run(plain, "--text", whole, "--max-bytes", most, "--json").facts()
        assert found["bytes"] == SIZE - 1


def test_standard_input_and_a_mark_and_line_ends(
    run: Run, begun: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(begun, "--text", file, "--json").facts()
    monkeypatch.setenv("HOME", str(file.parent))
    assert run(begun, f"--text=~/{file.name}", "--json").facts()["nll"] == expected["nll"]
    piped = run(begun, "--text", "-", "--json", stdin=b"\xef\xbb\xbf" + TEXT.encode()).facts()
    assert piped["text"] == "standard input"
    assert (piped["nll"], piped["bytes"]) == (expected["nll"], expected["bytes"])
    crlf = run(begun, "--text", "-", "--json", stdin=TEXT.replace("\n", "\r\n").encode()).facts()
    assert crlf["bytes"] == SIZE + 3


def test_literals_of_special_tokens_are_text_unless_they_are_allowed(
    run: Run, begun: Path, tmp_path: Path
) -> None:
    text = tmp_path / "two.txt"
    text.write_text("the cat<|endoftext|>the mat")
    ran = run(begun, "--text", text, "--json")
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("note: the text holds '<|endoftext|>'")
    assert ran.facts()["tokens"] == 27
    ran = run(begun, "--text", text, "--json", "--allow-special")
    assert ran.err == ""
    assert ran.facts()["tokens"] == 15


def test_progress_is_shown_in_a_terminal_only(
    run: Run, plain: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (plain, "--text", file, "--json")
    count = run(*arguments).facts()["tokens"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    ran = run(*arguments)
    assert f"{count}/{count}" in ran.err
    assert ran.facts()["tokens"] == count, "nothing of it goes to standard output"
