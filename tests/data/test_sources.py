"""From a path, a glob or a name to documents, and what is said when that fails."""

import builtins
import gzip
import json
import os
import sysconfig
import time
import types
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.data import Corpus, open_corpus
from mlxgpt.data.document import split_lines
from mlxgpt.data.source_file import SourceFile
from mlxgpt.errors import DataError


def texts(corpus: Corpus) -> list[str]:
    return [d.text for d in corpus.documents()]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_rows(path: Path, *rows: object) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def fails(path: Path | str, *parts: str, text_field: str = "text") -> None:
    """Check that reading ends in one line that has all `parts`."""
    with pytest.raises(DataError) as caught:
        texts(open_corpus(str(path), text_field=text_field))
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message, message


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


def test_a_folder_is_read_sorted_and_only_its_text_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/y.py", "B.TXT", "a.b/x.rst", "c.jsonl.gz"):
        row = json.dumps({"text": name}).encode()
        write(tmp_path / name, gzip.compress(row) if name.endswith(".gz") else name)
    for name in ("photo.png", "noname", ".hidden.txt", ".git/a.txt"):
        write(tmp_path / name, b"\xff")
    corpus = open_corpus(tmp_path)
    assert texts(corpus) == ["B.TXT", "a/y.py", "a/z.md", "a.b/x.rst", "b.txt", "c.jsonl.gz"]
    assert corpus.num_ignored == 2
    assert "6 files" in corpus.summary()
    assert "2 other files ignored" in corpus.summary()


def test_links_are_followed_but_a_loop_of_links_ends(tmp_path: Path) -> None:
    write(tmp_path / "a/x.txt", "x")
    (tmp_path / "a/up").symlink_to(tmp_path)
    (tmp_path / "a/gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "b.txt").symlink_to(tmp_path / "a/x.txt")
    assert texts(open_corpus(tmp_path)) == ["x", "x"]


def test_a_pipe_in_a_folder_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    write(tmp_path / "a.txt", "a")
    assert texts(open_corpus(tmp_path)) == ["a"]
    fails(tmp_path / "pipe.txt", "neither a file nor a folder")


def test_a_glob_takes_whatever_it_matches(tmp_path: Path) -> None:
    for name in ("x/1.log", "x/y/2.log", "x/3.txt", "[a].txt"):
        write(tmp_path / name, name)
    assert texts(open_corpus(f"{tmp_path}/x/**/*.log")) == ["x/1.log", "x/y/2.log"]
    assert texts(open_corpus(f"{tmp_path}/[a].txt")) == ["[a].txt"]
    fails(f"{tmp_path}/*.none", "no file matches", "*.none")


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


def test_missing_and_empty_sources_fail_at_once(tmp_path: Path) -> None:
    begin = time.perf_counter()
    fails(tmp_path / "none.txt", "no such file or folder", "none.txt")
    (tmp_path / "empty").mkdir()
    fails(tmp_path / "empty", "no text files")
    write(tmp_path / "images/a.png", b"\xff")
    fails(tmp_path / "images", "no text files", "1 files of other kinds")
    fails(write(tmp_path / "zero.txt", ""), "zero.txt", "empty")
    assert time.perf_counter() - begin < 1


def test_a_mistyped_name_is_guessed() -> None:
    fails("shakespear", "did you mean 'shakespeare'?")
    fails("latin", "python, shakespeare")


def test_a_file_changed_while_in_use_is_refused(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.txt", "before"))
    write(tmp_path / "a.txt", "after it")
    with pytest.raises(DataError, match=r"a\.txt was changed"):
        texts(corpus)


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.txt", "x")

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    corpus = open_corpus(path)
    monkeypatch.setattr(builtins, "open", refuse)
    with pytest.raises(DataError, match=r"a\.txt: Permission denied"):
        texts(corpus)


def test_the_fingerprint_is_of_the_content_alone(tmp_path: Path) -> None:
    def fingerprint(folder: str, *contents: str, name: str = "{}.txt", field: str = "text") -> str:
        for i, content in enumerate(contents):
            write(tmp_path / folder / name.format(i), content)
        return open_corpus(tmp_path / folder, text_field=field).fingerprint()

    one = fingerprint("one", "ab", "c")
    assert fingerprint("two", "ab", "c", name="other{}.md") == one
    assert fingerprint("two", "ab", "c", name="other{}.md", field="x") == one
    assert fingerprint("three", "a", "bc") != one
    assert fingerprint("four", "c", "ab") != one
    rows = fingerprint("five", '{"text": "a"}', name="{}.jsonl")
    assert fingerprint("six", '{"text": "a"}') != rows
    assert fingerprint("five", '{"text": "a"}', name="{}.jsonl", field="x") != rows


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


def test_the_standard_library_is_always_there() -> None:
    corpus = open_corpus("python")
    assert corpus.num_files > 300
    assert corpus.size_bytes > 3_000_000
    assert corpus == open_corpus("python")
    library = Path(sysconfig.get_path("stdlib"))
    names = {s.path.relative_to(library).as_posix() for s in corpus.sources}
    assert {"argparse.py", "json/decoder.py"} <= names
    assert not any("site-packages" in n or "__pycache__" in n for n in names)
    assert sum(len(t) for t in texts(corpus)) > 3_000_000


def test_a_local_file_called_python_needs_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "python", "a snake")
    monkeypatch.chdir(tmp_path)
    assert texts(open_corpus("./python")) == ["a snake"]
    assert texts(open_corpus(Path("python"))) == ["a snake"]
    assert open_corpus("python").num_files > 300


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
