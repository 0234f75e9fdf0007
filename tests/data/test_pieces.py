"""Documents in pieces: the same texts and the same errors, with little of a large file at once."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpora import texts, write, write_rows

from mlxgpt.data import Corpus, open_corpora, open_corpus
from mlxgpt.data.source_file import SourceFile
from mlxgpt.errors import DataError


def joined(corpus: Corpus) -> list[str]:
    return ["".join(pieces) for pieces in corpus.pieces()]


@given(
    st.text("a中😀é\n\ufeff\u2028", max_size=12).map(str.encode)
    | st.binary(max_size=8)
    | st.sampled_from(
        [b"\xef\xbb\xbfab\xff", b"\xef\xbb", b"ab\xe4\xb8", b"\xed\xa0\x80", b"\xff\xfea"]
    ),
    st.integers(1, 5),
    st.sampled_from(["", ".gz", ".zst"]),
)
@settings(max_examples=60)
def test_pieces_are_the_text_or_the_same_error(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes, size: int, suffix: str
) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[suffix]
    path = write(tmp_path_factory.mktemp("pieces") / f"a.txt{suffix}", pack(raw) or b"x")
    source = SourceFile.at(path)
    whole = raw if pack(raw) else b"x"

    class Small(SourceFile):
        def chunks(self, size: int = size) -> Iterator[bytes]:
            return SourceFile.chunks(self, size)

    corpus = Corpus(
        "a", (Small(path, source.kind, source.compression, source.size, source.mtime_ns),)
    )
    try:
        expected = whole.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        with pytest.raises(
            DataError, match=f"not UTF-8 at byte {e.start} \\(0x{whole[e.start]:02x}\\)"
        ):
            joined(corpus)
        return
    assert joined(corpus) == [expected]
    assert texts(corpus) == ([expected] if expected else [])


def test_every_kind_of_file_gives_the_texts_of_its_documents(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "é\n" * 3_000_000)
    write_rows(tmp_path / "b.jsonl", {"text": "x"}, {"text": "\ud83d"}, {"text": "y" * 3_000_000})
    corpus = open_corpus(tmp_path)
    assert joined(corpus) == texts(corpus)
    sizes = [[len(piece) for piece in pieces] for pieces in corpus.pieces()]
    assert len(sizes[0]) > 5
    assert max(sizes[0]) <= 1 << 20
    assert sizes[1:] == [[1], [1], [3_000_000]]


def test_a_large_file_is_not_read_before_its_pieces_are_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"a" * (3 << 20) + b"\xff")
    [pieces] = open_corpus(path).pieces()
    assert [len(next(pieces)) for _ in range(3)] == [1 << 20] * 3
    with pytest.raises(DataError, match=f"not UTF-8 at byte {3 << 20}"):
        next(pieces)


def test_a_field_is_set_where_there_are_fields(tmp_path: Path) -> None:
    text = str(write(tmp_path / "a.txt", "plain"))
    rows = str(write_rows(tmp_path / "b.jsonl", {"body": "x"}))
    both = open_corpora([text, rows], text_field="body")
    assert [joined(corpus) for corpus in both] == [["plain"], ["x"]]
    assert [joined(corpus) for corpus in open_corpora([text])] == [["plain"]]
    with pytest.raises(DataError, match=r"'body' has no effect on .*a\.txt, .*a\.txt"):
        open_corpora([text, text], text_field="body")
