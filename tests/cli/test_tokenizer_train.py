"""`mlxgpt tokenizer train`: fields, pieces, notes, and nothing half-written when it ends early."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from mlxgpt.cli.tokenizer import app
from mlxgpt.cli.tokenizer.reading import beginnings
from mlxgpt.data import Corpus, open_corpora
from mlxgpt.errors import DataError
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.text.compiled import tier

TEXT = "hug hug pug bun, don't\n" * 50


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, ["train", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def rows(path: Path, **row: str) -> Path:
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    return path


def test_text_comes_from_the_named_field(tmp_path: Path) -> None:
    plain = tmp_path / "a.txt"
    plain.write_text(TEXT, encoding="utf-8")
    other = rows(tmp_path / "b.jsonl", body="zug zug zug", text="no")
    out = tmp_path / "tok"
    printed = run(plain, other, "--text-field", "body", "--out", out, "--vocab-size", 265).stdout
    assert f"bytes read   {len(TEXT) + 11:,}, all used" in printed
    assert Tokenizer.load(out) == train_bpe([TEXT, "zug zug zug"], 265)
    with pytest.raises(DataError, match="'body' has no effect on"):
        run(plain, "--text-field", "body", "--out", out)
    with pytest.raises(DataError, match=r"b\.jsonl:1: no field 'x'"):
        run(plain, other, "--text-field", "x", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_parquet_columns_can_be_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"body": [TEXT, "zug"]}), tmp_path / "a.parquet")
    run(tmp_path / "a.parquet", "--text-field", "body", "--out", tmp_path, "--vocab-size", 265)
    assert Tokenizer.load(tmp_path) == train_bpe([TEXT, "zug"], 265)


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_ctrl_c_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")

    def interrupted(self: Corpus) -> Iterator[Iterator[str]]:
        yield iter([TEXT])
        raise KeyboardInterrupt

    monkeypatch.setattr(Corpus, "pieces", interrupted)
    result = run(tmp_path / "a.txt", "--type", kind, "--out", tmp_path / "tok")
    assert result.exit_code == 130
    assert "interrupted" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_note_says_how_much_smaller_the_vocabulary_is(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    result = run(tmp_path / "a.txt", "--min-frequency", 60, "--out", tmp_path / "tok")
    size = Tokenizer.load(tmp_path / "tok").vocab_size
    assert f"smaller than 4,096: it has {size:,} ids" in result.stderr
    assert size == train_bpe([TEXT], 4096, min_frequency=60).vocab_size < 265


def test_one_line_says_that_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warm_up(notice: Callable[[str], None], purpose: str) -> None:
        notice(f"compiling for {purpose} [once]")

    monkeypatch.setattr(tier, "worthwhile", lambda num_bytes, _: num_bytes > 0)
    monkeypatch.setattr(tier, "warm_up", warm_up)
    monkeypatch.setattr("mlxgpt.text.learning._LOOK_EVERY", 1)
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    result = run(tmp_path / "a.txt", "--out", tmp_path / "tok", "--vocab-size", 265)
    assert result.stderr == "compiling for training [once]\n"
    monkeypatch.undo()
    assert Tokenizer.load(tmp_path / "tok") == train_bpe([TEXT], 265)


def test_only_the_beginning_of_a_large_document_is_held_to_be_measured(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab" * 2_000_000)
    (tmp_path / "b.txt").write_bytes(b"cd")
    corpora = open_corpora([str(tmp_path)])
    assert list(beginnings(corpora, 3)) == ["aba", "cd"]
    assert [len(text) for text in beginnings(corpora, 5_000_000)] == [4_000_000, 2]
