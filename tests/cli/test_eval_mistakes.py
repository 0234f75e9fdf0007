"""`mlxgpt eval`: what it refuses, in one line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from eval_runs import TEXT, Run, put_around, running, save_plain

from mlxgpt.checkpoint import read_json, save_model, write_json
from mlxgpt.model import GPT
from mlxgpt.text import train_bpe, train_char


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


def test_texts_in_which_nothing_can_be_scored_are_refused(
    run: Run, plain: Path, begun: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    assert "is empty" in run(plain, "--text", "-").refused()
    assert "is empty" in run(begun, "--text", "-", stdin=b"\xef\xbb\xbf").refused()
    assert "no token" in run(plain, "--text", "-", stdin=b"a").refused()
    assert run(begun, "--text", "-", "--json", stdin=b"a").facts()["tokens"] == 1
    save_plain(tmp_path, random_gpt)
    put_around(tmp_path, "$A", "<|endoftext|>")  # "a" and the end: no byte of the text is scored
    assert "no token" in run(tmp_path, "--text", "-", stdin=b"a").refused()


def test_a_text_of_which_nothing_is_left_is_refused(
    run: Run, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    put_around(save_plain(tmp_path, random_gpt), "<|endoftext|>", "$A")
    content = read_json(tmp_path / "tokenizer.json")
    content["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    write_json(tmp_path / "tokenizer.json", content)
    assert "no token" in run(tmp_path, "--text", "-", stdin=b"  ").refused()


def test_bad_texts_are_refused(run: Run, plain: Path, tmp_path: Path) -> None:
    assert "byte 2 (0xff)" in run(plain, "--text", "-", stdin=b"ab\xffcd").refused()
    assert "byte 2" in run(plain, "--text", "-", stdin=b"ab\xc3").refused(), "half a character"
    damaged = ("--max-bytes", 4)
    assert "byte 1" in run(plain, "--text", "-", *damaged, stdin=b"a\xffbcdef").refused()
    assert "No such file" in run(plain, "--text", tmp_path / "none.txt").refused()
    assert "directory" in run(plain, "--text", tmp_path).refused()
    assert "--text" in run(plain).refused()


def test_bad_settings_are_refused_before_weights_are_read(
    run: Run, plain: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlxgpt.checkpoint.load_model", None)
    for option, value, part in (
        ("--context", 17, "at most 16"), ("--context", 1, "at least 2"), ("--context", -4, "-4"),
        ("--stride", 0, "at least 1"), ("--stride", 16, "below"), ("--stride", -1, "-1"),
        ("--batch", 0, "--batch"), ("--max-bytes", 0, "--max-bytes"), ("--context", "x", "--cont"),
    ):  # fmt: skip
        assert part in run(plain, "--text", file, option, value).refused()


def test_models_that_do_not_fit_are_refused(
    run: Run, tmp_path: Path, file: Path, random_gpt: Callable[..., GPT]
) -> None:
    assert "does not exist" in run(tmp_path / "none", "--text", file).refused()
    tokenizer = train_bpe([TEXT], 262)
    save_model(tmp_path, random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    train_bpe([TEXT * 2], 270).save(tmp_path)
    assert "do not belong together" in run(tmp_path, "--text", file).refused()


def test_numbers_that_are_not_finite_are_no_figures(
    run: Run, tmp_path: Path, file: Path, random_gpt: Callable[..., GPT]
) -> None:
    tokenizer = train_char([TEXT])
    model = random_gpt(vocab_size=tokenizer.vocab_size)
    gains = model.weights()["model.norm.weight"]
    model.set_weights({"model.norm.weight": gains * mx.array(1e38)})
    mx.eval(model.parameters())
    save_model(tmp_path, model, tokenizer)
    assert "not numbers" in run(tmp_path, "--text", file).refused()
    model.set_weights({"model.norm.weight": gains * 1e4})
    mx.eval(model.parameters())
    save_model(tmp_path, model, tokenizer)
    found = run(tmp_path, "--text", file, "--json").facts()
    assert found["nats_per_token"] > 710
    assert found["perplexity"] is None, "JSON has no infinity"
    assert " inf" in run(tmp_path, "--text", file).out
