"""`mlxgpt tokenizer compare`: tokenizers side by side on one text."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mlxgpt.cli.tokenizer import app
from mlxgpt.errors import ConfigError, DataError, MLXGPTError
from mlxgpt.text import Tokenizer, measure_compression, train_bpe, train_char

TEXT = "hug pug hug pun bun hugs, naïve\n" * 40


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    train_bpe([TEXT], 280).save(folder / "large")
    train_bpe([TEXT], 262).save(folder / "small")
    train_char([TEXT]).save(folder / "char")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return folder


def rows(printed: str) -> dict[str, list[str]]:
    """Return title -> cells of the lines of the table that have a title."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) > 1}


def test_the_numbers_stand_side_by_side_and_the_best_has_a_star(place: Path) -> None:
    names = ["large", "small", "char"]
    printed = run(*(place / name for name in names), "--corpus", place / "text.txt")
    assert printed.splitlines()[0].split() == names
    table = rows(printed)
    tokenizers = [Tokenizer.load(place / name) for name in names]
    found = [measure_compression(t, [TEXT]) for t in tokenizers]
    assert table["kind"] == ["bpe", "bpe", "char"]
    assert table["vocabulary"] == [str(t.vocab_size) for t in tokenizers]
    tokens = [f"{m.num_tokens:,}" for m in found]
    assert table["tokens"] == [f"{tokens[0]} *", *tokens[1:]]
    ratios = [f"{m.bytes_per_token:.3f}" for m in found]
    assert table["bytes/token"] == [f"{ratios[0]} *", *ratios[1:]]
    assert table["words split"][0].endswith("*")
    assert table["texts kept exactly"] == ["100.0%"] * 3, "no star where all are equal"
    assert f"{len(TEXT.encode()):,} bytes in 1 text, all of it" in printed


def test_json_holds_what_was_measured(place: Path) -> None:
    arguments = (place / "small", place / "char" / "tokenizer.json", "--corpus", place / "text.txt")
    report = json.loads(run(*arguments, "--json"))
    assert (report["num_bytes"], report["num_texts"]) == (len(TEXT.encode()), 1)
    small, char = report["tokenizers"]
    tokenizer = Tokenizer.load(place / "small")
    ids = tokenizer.encode(TEXT)
    assert small["content_hash"] == tokenizer.content_hash
    assert small["num_tokens"] == len(ids)
    assert small["vocab_use"] == len(set(ids)) / 261
    assert small["num_words"] == char["num_words"] == 7 * 40
    assert small["most_frequent"][0]["count"] == max(map(ids.count, set(ids)))
    assert (char["num_tokens"], char["words_split"]) == (len(TEXT), 1.0)
    assert char["most_frequent"][0] == {"id": 1, "text": " ", "count": 240}


def test_the_beginning_is_measured_and_that_is_said(place: Path) -> None:
    arguments = (place / "small", "--corpus", place / "text.txt", "--max-bytes", 29)
    # Byte 29 is in the middle of the ï.
    assert "28 bytes in 1 text, at most 29 (--max-bytes)" in run(*arguments)
    report = json.loads(run(*arguments, "--json"))
    assert (report["num_bytes"], report["is_cut"]) == (28, True)


def test_fields_of_jsonl_are_read(tmp_path: Path, place: Path) -> None:
    lines = "".join(json.dumps({"story": "hug " * n}) + "\n" for n in range(1, 41))
    (tmp_path / "s.jsonl").write_text(lines)
    arguments = (place / "small", "--corpus", tmp_path / "s.jsonl", "--json")
    report = json.loads(run(*arguments, "--text-field", "story"))
    assert (report["num_texts"], report["num_bytes"]) == (40, 4 * sum(range(1, 41)))
    assert report["grouped_by"] == "tenth of the documents, short to long"
    assert list(report["tokenizers"][0]["groups"]) == list(map(str, range(1, 11)))
    with pytest.raises(DataError, match="no field 'text'"):
        run(*arguments)


def test_texts_are_grouped_by_corpus_or_kind(tmp_path: Path, place: Path) -> None:
    (tmp_path / "a.py").write_text("hug = 1\n")
    (tmp_path / "b.md").write_text("# pug\n")
    by_kind = json.loads(run(place / "small", "--corpus", tmp_path, "--json"))
    assert by_kind["grouped_by"] == "kind of file"
    assert set(by_kind["tokenizers"][0]["groups"]) == {".py", ".md"}
    corpora = ("--corpus", tmp_path, "--corpus", place / "text.txt")
    by_corpus = json.loads(run(place / "small", *corpora, "--json"))
    assert set(by_corpus["tokenizers"][0]["groups"]) == {tmp_path.name, "text.txt"}


@pytest.mark.parametrize("several", [False, True])
def test_the_plot_is_a_png(tmp_path: Path, place: Path, several: bool) -> None:
    from PIL import Image

    file = tmp_path / "comparison.png"
    corpora = ["--corpus", place / "text.txt"]
    if several:
        other = tmp_path / "$odd$.txt"
        other.write_text("日本語 " * 9, encoding="utf-8")
        corpora += ["--corpus", other]
    printed = run(place / "large", place / "small", place / "small", *corpora, "--plot", file)
    assert f"plot: {file}" in printed
    with Image.open(file) as image:
        assert (image.format, image.size) == ("PNG", (1560, 650))
        colours = {colour for _, colour in image.convert("RGB").getcolors(10**6)}
    assert {(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00), (0x00, 0x9E, 0x73)} <= colours


def test_a_long_token_is_shown_by_its_ends(tmp_path: Path) -> None:
    word = "abcdefghijklmnopqrstuvwxyz"
    train_bpe([word * 3], 400, pattern="z|[a-y]+z?").save(tmp_path / "tok")
    (tmp_path / "t.txt").write_text(word)
    printed = run(tmp_path / "tok", "--corpus", tmp_path / "t.txt")
    assert "│abcdefghij…qrstuvwxyz│ 26 bytes" in printed


def test_columns_have_the_shortest_names_that_differ(tmp_path: Path, place: Path) -> None:
    for name in ("x", "y"):
        train_char(["ab"]).save(tmp_path / name / "tok")
    printed = run(tmp_path / "x/tok", tmp_path / "y/tok", "--corpus", place / "text.txt")
    assert printed.splitlines()[0].split() == ["x/tok", "y/tok"]


def test_what_cannot_be_done_is_one_clear_error(tmp_path: Path, place: Path) -> None:
    corpus = ("--corpus", place / "text.txt")
    wrong: list[tuple[list[object], type[MLXGPTError], str]] = [
        ([tmp_path, *corpus], MLXGPTError, r"holds no tokenizer\.json"),
        ([place / "small", "--corpus", tmp_path / "no.txt"], DataError, r"no\.txt"),
        ([place / "small", *corpus, "--plot", "a.pdf"], ConfigError, r"end in \.png"),
        ([place / "small", *corpus, "--plot", tmp_path / "no/a.png"], ConfigError, "no folder"),
        ([place / "small", *corpus, "--text-field", "story"], DataError, "has no effect"),
    ]
    for arguments, kind, message in wrong:
        with pytest.raises(kind, match=message):
            run(*arguments)
    (tmp_path / "blank.jsonl").write_text('{"text": ""}\n')
    with pytest.raises(DataError, match=r"there is no text in .*blank\.jsonl"):
        run(place / "small", "--corpus", tmp_path / "blank.jsonl")
