"""What is read from a file of each kind, and what is said when it cannot be."""

import gzip
import json
import os
import types
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from toy_corpora import fails, texts, write, write_rows

from mlxgpt.data import open_corpus
from mlxgpt.data.document import split_lines
from mlxgpt.data.source_file import SourceFile


def test_a_file_is_one_document_and_keeps_every_byte(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\r\ntwo\u2028three\x00\n")
    [document] = open_corpus(path).documents()
    assert document.text.encode() == path.read_bytes()
    assert document.origin == str(path)


def test_a_byte_order_mark_is_not_text(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", b"\xef\xbb\xbfhi")
    write_path = tmp_path / "b.jsonl"
    write(write_path, b'\xef\xbb\xbf{"text": "ho"}')
    assert texts(open_corpus(tmp_path)) == ["hi", "ho"]


def test_empty_documents_are_dropped(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "")
    write_rows(tmp_path / "b.jsonl", {"text": "x"}, {"text": ""}, {"text": " "})
    assert texts(open_corpus(tmp_path)) == ["x", " "]


def test_rows_end_at_newlines_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, '{"text": "a\u2028b\x85c"}\r\n\n  \n{"text": "d"}')
    documents = list(open_corpus(path).documents())
    assert [d.text for d in documents] == ["a\u2028b\x85c", "d"]
    assert [d.origin for d in documents] == [f"{path}:1", f"{path}:4"]


def test_another_field_can_hold_the_text(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.jsonl", {"content": "x", "text": 1})
    assert texts(open_corpus(path, text_field="content")) == ["x"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("{broken", ["a.jsonl:2", "not a JSON value"]),
        ("[1]", ["a.jsonl:2", "expected an object", "a list"]),
        ('{"body": "x", "id": 1}', ["a.jsonl:2", "no field 'text'", "body, id"]),
        ('{"text": null}', ["a.jsonl:2", "must be a string", "null"]),
        ('{"text": 3}', ["a.jsonl:2", "must be a string", "a number"]),
        ("[" * 100_000, ["a.jsonl:2", "not a JSON value"]),
    ],
)
def test_a_bad_row_is_an_error_with_file_and_line(
    tmp_path: Path, line: str, parts: list[str]
) -> None:
    fails(write(tmp_path / "a.jsonl", '{"text": "ok"}\n' + line + "\n"), *parts)


def test_b10_escaped_surrogates_join_and_a_lone_one_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a\\ud83db"}\n{"text": "\\ud83d\\udc4d"}\n')
    assert texts(open_corpus(path)) == ["a\ufffdb", "\U0001f44d"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_compressed_files_give_the_same_documents(tmp_path: Path, suffix: str) -> None:
    def pack(raw: bytes) -> bytes:
        if suffix == ".gz":
            return gzip.compress(raw[:5]) + gzip.compress(raw[5:])  # two members are one file
        if suffix == ".zst":
            compress = zstandard.ZstdCompressor().compress
            return compress(raw[:5]) + compress(raw[5:])
        return raw

    text = "中😀é\n" * 100_000
    write(tmp_path / f"a.txt{suffix}", pack(text.encode()))
    rows = "".join(json.dumps({"text": f"é{i}"}) + "\n" for i in range(50_000))
    write(tmp_path / f"b.jsonl{suffix}", pack(rows.encode()))
    assert texts(open_corpus(tmp_path)) == [text, *(f"é{i}" for i in range(50_000))]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_cut_or_false_compressed_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    raw = os.urandom(100_000).hex().encode()
    checked = zstandard.ZstdCompressor(write_checksum=True)  # as the zstd command does
    packed = gzip.compress(raw) if suffix == ".gz" else checked.compress(raw)
    fails(write(tmp_path / f"cut.txt{suffix}", packed[:-9]), f"cut.txt{suffix}", "cut off")
    fails(write(tmp_path / f"not.txt{suffix}", "plain text"), "cannot read", f"not.txt{suffix}")
    damaged = packed[:5000] + bytes(200) + packed[5200:]
    fails(write(tmp_path / f"bad.txt{suffix}", damaged), "cannot read", f"bad.txt{suffix}")


def test_what_is_not_utf8_is_named_with_its_byte(tmp_path: Path) -> None:
    fails(write(tmp_path / "a.txt", "é".encode() + b"x\xe9y"), "a.txt", "byte 3", "0xe9")
    fails(write(tmp_path / "b.txt", b"\xef\xbb\xbfab\xff"), "b.txt", "byte 5")
    fails(write(tmp_path / "c.txt", "hi".encode("utf-16")), "c.txt", "byte 0", "UTF-16")
    fails(write(tmp_path / "d.jsonl", b'{"text": "a"}\n{"text": "\xe9"}\n'), "jsonl:2", "byte 24")


@given(st.binary(max_size=60), st.integers(1, 7))
def test_b21_lines_do_not_depend_on_the_size_of_reads(raw: bytes, size: int) -> None:
    chunks = [raw[i : i + size] for i in range(0, len(raw), size)]
    whole = raw.split(b"\n")
    assert list(split_lines(chunks)) == (whole if whole[-1] else whole[:-1])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 4096])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_b21_a_character_on_the_border_of_two_reads_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, suffix: str
) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    text = "中😀é" * 300
    write(tmp_path / f"a.txt{suffix}", pack(text.encode()))
    write(tmp_path / f"b.jsonl{suffix}", pack(f'{{"text": "{text}"}}\n'.encode()))
    chunks = SourceFile.chunks
    monkeypatch.setattr(SourceFile, "chunks", lambda self: chunks(self, size))
    assert texts(open_corpus(tmp_path)) == [text, text]


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> types.ModuleType:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("mlxgpt.data.document.import_module", absent)
    fails(write(tmp_path / "a.parquet", "PAR1"), "a.parquet", "pip install 'mlxgpt[parquet]'")


def test_parquet_rows_are_documents(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [f"é{i}" for i in range(300)]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": rows, "n": range(300)}), path, row_group_size=100)
    documents = list(open_corpus(path).documents())
    assert [d.text for d in documents] == rows
    assert documents[299].origin == f"{path} row 300"
    packed = write(tmp_path / "b.parquet.zst", zstandard.compress(path.read_bytes()))
    assert texts(open_corpus(packed)) == rows
    fails(path, "a.parquet", "no column 'body'", "text, n", text_field="body")
    fails(path, "a.parquet row 1", "must hold strings", "a number", text_field="n")
    fails(write(tmp_path / "c.parquet", path.read_bytes()[:-9]), "cannot read", "c.parquet")
