"""From a path, a glob or a name to files, and what is said when that fails."""

import builtins
import gzip
import json
import os
import sysconfig
import time
from dataclasses import replace
from pathlib import Path

import pytest
from toy_corpora import fails, texts, write

from mlxgpt.data import open_corpus
from mlxgpt.errors import DataError


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
    plain = open_corpus(tmp_path / "two")
    assert replace(plain, text_field="x").fingerprint() == one  # it has no fields
    assert fingerprint("three", "a", "bc") != one
    assert fingerprint("four", "c", "ab") != one
    rows = fingerprint("five", '{"text": "a"}', name="{}.jsonl")
    assert fingerprint("six", '{"text": "a"}') != rows
    assert fingerprint("five", '{"text": "a"}', name="{}.jsonl", field="x") != rows


@pytest.mark.parametrize("spec", ["notes.txt", "python"])
def test_a_field_of_text_without_fields_is_refused(
    spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "notes.txt", "a")
    with pytest.raises(DataError, match=r"the text field 'body' has no effect on .*jsonl"):
        open_corpus(spec, text_field="body")
    write(tmp_path / "rows.jsonl", '{"body": "b"}')
    assert [d.text for d in open_corpus(tmp_path, text_field="body").documents()] == ["a", "b"]


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


@pytest.mark.parametrize("spec", ["", " "])
def test_an_empty_name_is_no_folder(spec: str) -> None:
    with pytest.raises(DataError, match="the corpus has no name"):
        open_corpus(spec)
