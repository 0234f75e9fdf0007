"""`mlxgpt tokenizer`: what a user types, sees, and is told when it cannot be done."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlxgpt.cli.tokenizer import app
from mlxgpt.errors import DataError, MLXGPTError, TokenizerError
from mlxgpt.text import Tokenizer, train_bpe

TEXT = "hug hug pug bun, don't\n" * 50


def run(*arguments: object, stdin: str | bytes | None = None) -> str:
    """Run a command and return what it prints; an error of ours is raised."""
    result = CliRunner().invoke(app, list(map(str, arguments)), input=stdin)
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


@pytest.fixture
def trained(tmp_path: Path, corpus: Path) -> Path:
    run("train", corpus, "--out", tmp_path / "tok", "--vocab-size", 265)
    return tmp_path / "tok"


def test_train_reports_what_it_did(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["mlxgpt"])
    printed = run("train", corpus, "--out", tmp_path / "tok", "--vocab-size", 265)
    assert "265 ids" in printed
    assert "merges       8" in printed
    assert f"bytes read   {len(TEXT):,}, all used" in printed
    tokens = len(Tokenizer.load(tmp_path / "tok").encode(TEXT))
    assert f"bytes/token  {len(TEXT) / tokens:.2f}" in printed
    assert f"next: mlxgpt tokenizer encode {tmp_path / 'tok'}" in printed


def test_train_takes_all_settings(tmp_path: Path, corpus: Path) -> None:
    options = ["--pattern", "qwen2", "--min-frequency", 60, "--max-token-length", 2]
    specials = ["--special", "<|pad|>", "--special", "<|endoftext|>"]
    run("train", corpus, "--out", tmp_path, "--vocab-size", 300, *options, *specials)
    facts = json.loads(run("info", tmp_path, "--json"))
    assert facts["patterns"] == ["qwen2"]
    n = facts["vocab_size"]
    assert facts["special_tokens"] == {"<|endoftext|>": n - 2, "<|pad|>": n - 1}
    assert len(facts["longest_token"]["text"]) == 2
    settings = {"pattern": "qwen2", "min_frequency": 60, "max_token_length": 2}
    settings["special_tokens"] = ["<|endoftext|>", "<|pad|>"]
    assert Tokenizer.load(tmp_path) == train_bpe([TEXT], 300, **settings)
    for name in settings:
        others = {n: value for n, value in settings.items() if n != name}
        assert Tokenizer.load(tmp_path) != train_bpe([TEXT], 300, **others), f"{name} is no matter"


def test_train_says_when_the_text_holds_less(tmp_path: Path, corpus: Path) -> None:
    result = CliRunner().invoke(app, ["train", str(corpus), "--out", str(tmp_path / "tok")])
    assert result.exit_code == 0
    assert "the vocabulary is smaller than 4,096" in result.stderr


def test_several_sources_are_one_corpus(tmp_path: Path, corpus: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("zebra " * 100)
    printed = run("train", corpus, other, "--out", tmp_path / "tok", "--type", "char")
    assert f"bytes read   {len(TEXT) + 600:,}" in printed
    assert len(Tokenizer.load(tmp_path / "tok").encode("zebra")) == 5


def test_another_tokenizer_is_not_replaced_by_accident(trained: Path, corpus: Path) -> None:
    before = (trained / "tokenizer.json").read_bytes()
    run("train", corpus, "--out", trained, "--vocab-size", 265)
    with pytest.raises(TokenizerError, match=r"already holds another tokenizer.*--force"):
        run("train", corpus, "--out", trained, "--vocab-size", 260)
    assert (trained / "tokenizer.json").read_bytes() == before
    run("train", corpus, "--out", trained, "--vocab-size", 260, "--force")
    assert Tokenizer.load(trained).vocab_size == 260


@pytest.mark.parametrize(("name", "content"), [("empty.txt", ""), ("empty.jsonl", '{"text": ""}')])
def test_an_empty_corpus_is_named(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=name):
        run("train", tmp_path / name, "--out", tmp_path / "tok")
    assert not (tmp_path / "tok").exists()


@pytest.mark.parametrize(
    "option", ["--vocab-size=300", "--pattern=gpt2", "--min-frequency=2", "--max-token-length=9"]
)
def test_no_option_is_taken_and_ignored(tmp_path: Path, corpus: Path, option: str) -> None:
    with pytest.raises(TokenizerError, match=option.split("=")[0]):
        run("train", corpus, "--out", tmp_path / "tok", "--type", "char", option)


def test_encode_and_decode_are_inverse(trained: Path) -> None:
    text = "pug 日本\n\n"
    ids = run("encode", trained, stdin=text)
    assert ids.split() == list(map(str, Tokenizer.load(trained).encode(text)))
    assert run("decode", trained, "-", stdin=ids) == text
    assert run("decode", trained, *ids.split()) == text
    assert run("encode", trained, text) == ids


def test_encode_draws_with_a_seed(trained: Path) -> None:
    text = "hug pug bun " * 9
    drawn = [run("encode", trained, text, "--dropout", 0.3, "--seed", n) for n in (0, 0, 1)]
    assert drawn[0] == drawn[1] == run("encode", trained, text, "--dropout", 0.3)
    assert drawn[0] != drawn[2]
    ids = Tokenizer.load(trained).encode(text, dropout=0.3, seed=1)
    assert drawn[2].split() == list(map(str, ids))
    assert run("decode", trained, *ids) == text
    assert run("encode", trained, text, "--dropout", 0) == run("encode", trained, text)


def test_specials_act_only_when_allowed(trained: Path) -> None:
    plain = run("encode", trained, "a<|endoftext|>").split()
    assert "264" not in plain
    ids = run("encode", trained, "a<|endoftext|>", "--allow-special").split()
    assert ids[-1] == "264"
    assert run("decode", trained, *ids) == "a<|endoftext|>"
    assert run("decode", trained, "--skip-special", *ids) == "a"


def test_what_cannot_be_done_is_one_clear_error(tmp_path: Path, trained: Path) -> None:
    wrong: list[tuple[list[object], str]] = [
        (["decode", trained, "1", "x2"], "got 'x2'"),
        (["decode", trained, "999"], "id 999 is not in this vocabulary"),
        (["info", tmp_path], r"holds no tokenizer\.json"),
        (["encode", tmp_path / "no", "text"], "there is no tokenizer file"),
        (["encode", trained, "text", "--seed", "1"], "--seed has no meaning without --dropout"),
        (["encode", trained, "text", "--dropout", "1.5"], "must be between 0 and 1"),
    ]
    for arguments, message in wrong:
        with pytest.raises(MLXGPTError, match=message):
            run(*arguments)
    with pytest.raises(DataError, match="standard input is not UTF-8"):
        run("encode", trained, "-", stdin=b"\xff")


def test_info_shows_a_table(trained: Path) -> None:
    printed = run("info", trained)
    tokenizer = Tokenizer.load(trained)
    lines = [line.rstrip() for line in printed.splitlines()]
    assert lines == [
        "family          byte-level BPE",
        "vocabulary      265 ids",
        "merges          8",
        "special tokens  <|endoftext|> 264",
        "end of text     <|endoftext|> 264",
        "normalizer      none",
        "pre-tokenizer   Split, ByteLevel",
        "pattern         gpt2",
        "BPE-dropout     yes, exact (Provilkov et al. 2020, algorithm 1)",
        "longest token   │ hug│ 262, 4 bytes",
        f"content hash    {tokenizer.content_hash}",
    ]
    facts = json.loads(run("info", trained, "--json"))
    assert facts["content_hash"] == tokenizer.content_hash
    assert (facts["kind"], facts["merges"]) == ("bpe", 8)


def test_info_of_characters(tmp_path: Path, corpus: Path) -> None:
    run("train", corpus, "--out", tmp_path, "--type", "char")
    printed = run("info", tmp_path)
    assert "characters, one id each; other characters as bytes" in printed
    assert "no: there are no merges to drop" in printed
    assert "│\\n│ 0, 1 byte\n" in re.sub(" +\n", "\n", printed)


def test_info_counts_many_special_tokens(tmp_path: Path, corpus: Path) -> None:
    specials = [word for n in range(7) for word in ("--special", f"<{n}>")]
    run("train", corpus, "--out", tmp_path, "--type", "char", *specials)
    assert re.search(r"8: <\|endoftext\|> \d+, <0> .*, <4> \d+, and 2 more", run("info", tmp_path))
    assert len(json.loads(run("info", tmp_path, "--json"))["special_tokens"]) == 8
