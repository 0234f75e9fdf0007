"""A spec (path, glob or name) -> a corpus: documents in a fixed order, streamed."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlxgpt.data.document import Document, read_documents, read_pieces
from mlxgpt.data.listing import list_files
from mlxgpt.data.named import NAMES, list_named
from mlxgpt.data.source_file import SourceFile
from mlxgpt.errors import DataError, did_you_mean

DEFAULT_FIELD = "text"


@dataclass(frozen=True)
class Corpus:
    """Files read as one long list of documents."""

    name: str
    """The spec it was opened with."""
    sources: tuple[SourceFile, ...]
    text_field: str = DEFAULT_FIELD
    num_ignored: int = 0
    """Files that were met and passed over because of their kind."""

    @property
    def num_files(self) -> int:
        return len(self.sources)

    @property
    def has_fields(self) -> bool:
        """Whether `text_field` matters to any of the files."""
        return any(source.kind != "text" for source in self.sources)

    @property
    def size_bytes(self) -> int:
        """Bytes on the disk, compressed files as they are."""
        return sum(source.size for source in self.sources)

    def documents(self) -> Iterator[Document]:
        """Yield the documents in order; memory is bounded by the largest of them.

        A document without a single character is dropped: what follows each remaining document in a
        token file is exactly one end-of-text token, and two of them in a row would mean nothing.
        Raises `DataError` naming the file and the place for whatever cannot be read.
        """
        for source in self.sources:
            for document in read_documents(source, self.text_field):
                if document.text:
                    yield document

    def pieces(self) -> Iterator[Iterator[str]]:
        """Yield each document as its pieces in order; take them before you ask for the next one.

        They are the texts of `documents()`, but of a large text file only a small part is held at
        once. Empty documents may be among them, as documents without pieces or with an empty one.
        """
        for source in self.sources:
            yield from read_pieces(source, self.text_field)

    def fingerprint(self) -> str:
        """Return a sha256 over the bytes of all files, in order, and the settings for reading them.

        Names and places of the files do not count, only what is in them.
        """
        digest = hashlib.sha256(b"mlxgpt corpus 1\n")
        if self.has_fields:
            digest.update(f"field {self.text_field!r}\n".encode())
        for source in self.sources:
            source.hash_into(digest)
        return digest.hexdigest()

    def summary(self) -> str:
        """Return one line for the user: name, files, size, and what was passed over."""
        files = "1 file" if self.num_files == 1 else f"{self.num_files:,} files"
        ignored = f", {self.num_ignored:,} other files ignored" if self.num_ignored else ""
        return f"{self.name}: {files}, {self.size_bytes / 1e6:.1f} MB{ignored}"


def open_corpus(
    spec: str | Path,
    *,
    text_field: str = DEFAULT_FIELD,
    progress: Callable[[int, int], None] | None = None,
) -> Corpus:
    """Find the files that `spec` stands for, without reading them.

    `spec` is a file, a folder, a glob (`**` included) or the name of a built-in corpus. A name wins
    over a file of that name; `./python` or a `Path` means the file. `progress(done, total)` counts
    the bytes of a download, where one is needed. Raises `DataError` if there is nothing to read, or
    if `text_field` is given for text that has no fields.
    """
    name = str(spec)
    if not name.strip():
        raise DataError("the corpus has no name; give a file, a folder, a glob or a built-in one")
    if isinstance(spec, str) and spec in NAMES:
        sources, ignored = list_named(spec, progress)
    else:
        sources, ignored = _list_files(name)
    corpus = Corpus(name, tuple(sources), text_field, ignored)
    _check_field(text_field, [corpus])
    if corpus.size_bytes == 0:
        raise DataError(f"{name} is empty: there is not a single byte to read")
    return corpus


def open_corpora(specs: Sequence[str], *, text_field: str = DEFAULT_FIELD) -> list[Corpus]:
    """Do what `open_corpus` does for each of several specs that are read one after the other.

    `text_field` counts where there are fields. Raises `DataError` if that is nowhere.
    """
    corpora = [open_corpus(spec) for spec in specs]
    _check_field(text_field, corpora)
    return [replace(c, text_field=text_field) if c.has_fields else c for c in corpora]


def _check_field(text_field: str, corpora: Sequence[Corpus]) -> None:
    if text_field != DEFAULT_FIELD and not any(corpus.has_fields for corpus in corpora):
        names = ", ".join(corpus.name for corpus in corpora)
        raise DataError(
            f"the text field '{text_field}' has no effect on {names}: there is no .jsonl and no "
            ".parquet in it; leave 'text_field' out"
        )


def absolute(spec: str) -> str:
    """Return `spec` so that it means the same from any folder; a built-in name stays as it is."""
    return spec if spec in NAMES else os.path.abspath(os.path.expanduser(spec))


def _list_files(name: str) -> tuple[list[SourceFile], int]:
    """Do what `list_files` does; for a word that stands for nothing, suggest a built-in corpus."""
    try:
        return list_files(name)
    except DataError as e:
        if re.fullmatch(r"[A-Za-z]+", name) and not Path(name).exists():
            raise DataError(
                f"'{name}' is no file, no folder and no built-in corpus{did_you_mean(name, NAMES)}"
            ) from e
        raise
