"""A source file -> its documents: a text file is one, a `.jsonl` line or a parquet row is one."""

import codecs
import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from typing import Any

from mlxgpt.data.source_file import SourceFile
from mlxgpt.errors import DataError
from mlxgpt.text import repair_surrogates

BOM = b"\xef\xbb\xbf"
PARQUET_ROWS = 64


@dataclass(frozen=True)
class Document:
    """A text that stands for itself: nothing in it is a continuation of another document."""

    text: str
    origin: str
    """File, and line or row, for messages."""


def read_documents(source: SourceFile, text_field: str) -> Iterator[Document]:
    """Yield the documents of one file in order, empty ones too; memory is bounded by one document.

    A UTF-8 mark at the start is dropped, line ends stay as they are. Raises `DataError` naming the
    file and the byte, line or row for anything that cannot be read as it stands.
    """
    if source.kind == "jsonl":
        yield from _read_jsonl(source, text_field)
    elif source.kind == "parquet":
        yield from _read_parquet(source, text_field)
    else:
        yield Document("".join(_read_text(source)), str(source.path))


def read_pieces(source: SourceFile, text_field: str) -> Iterator[Iterator[str]]:
    """Yield the documents of one file, each as its pieces in order; take them before the next.

    Joined they are the texts of `read_documents`. Only a text file comes in several pieces, cut
    between any two characters: however large it is, little of it is held at once. Raises the same
    errors, those of a text file as its pieces are taken.
    """
    if source.kind == "text":
        yield _read_text(source)
    else:
        for document in read_documents(source, text_field):
            yield iter((document.text,))


def split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a byte stream without their `\\n`, which alone ends a line.

    Cutting happens on bytes, before decoding, so a character on the border of two chunks is safe.
    """
    pending: list[bytes] = []
    for chunk in chunks:
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            pending.append(line)
            yield b"".join(pending)
            pending.clear()
        if rest:
            pending.append(rest)
    if pending:
        yield b"".join(pending)


def _read_text(source: SourceFile) -> Iterator[str]:
    """Yield the text of a file in pieces of about a chunk; half a character waits for its rest."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0  # of what the decoder is given next
    at_start = True
    # An empty chunk at the end says that nothing more will come.
    for chunk in chain(filter(None, source.chunks()), (b"",)):
        waiting = len(decoder.getstate()[0])
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as e:
            raise _not_utf8(e, position - waiting, str(source.path)) from e
        position += len(chunk)
        if text and at_start:
            at_start = False
            text = text.removeprefix("\ufeff")
        if text:
            yield text


def _read_jsonl(source: SourceFile, text_field: str) -> Iterator[Document]:
    offset = 0
    for number, line in enumerate(split_lines(source.chunks()), start=1):
        origin = f"{source.path}:{number}"
        start = len(BOM) if number == 1 and line.startswith(BOM) else 0
        text = _decode(line[start:], offset + start, origin)
        offset += len(line) + 1
        if not text.strip(" \t\r"):
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise DataError(f"{origin}: not a JSON value ({e})") from e
        if not isinstance(row, dict):
            raise DataError(f"{origin}: expected an object {{...}}, got {_json_type(row)}")
        if text_field not in row:
            fields = ", ".join(map(str, row)) or "none"
            raise DataError(
                f"{origin}: no field '{text_field}'; the fields are: {fields}; set 'text_field'"
            )
        value = row[text_field]
        if not isinstance(value, str):
            raise DataError(
                f"{origin}: the field '{text_field}' must be a string, got {_json_type(value)}"
            )
        yield Document(repair_surrogates(value), origin)


def _read_parquet(source: SourceFile, text_field: str) -> Iterator[Document]:
    try:
        pyarrow: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
    except ImportError as e:
        raise DataError(
            f"{source.path} needs pyarrow to be read: pip install 'mlxgpt[parquet]'"
        ) from e
    with tempfile.TemporaryFile() as unpacked:
        if source.compression != "none":  # parquet is read from its end, so it has to be a file
            for chunk in source.chunks():
                unpacked.write(chunk)
            unpacked.seek(0)
        try:
            file = parquet.ParquetFile(source.path if source.compression == "none" else unpacked)
            columns = file.schema_arrow.names
            if text_field not in columns:
                raise DataError(
                    f"{source.path}: no column '{text_field}'; the columns are: "
                    f"{', '.join(columns)}; set 'text_field'"
                )
            row = 0
            for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=[text_field]):
                for value in batch.column(0):
                    row += 1
                    text = value.as_py()
                    if not isinstance(text, str):
                        raise DataError(
                            f"{source.path} row {row}: the column '{text_field}' must hold "
                            f"strings, got {_json_type(text)}"
                        )
                    yield Document(text, f"{source.path} row {row}")
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as e:
            raise DataError(f"cannot read {source.path}: {' '.join(str(e).split())}") from e


def _decode(raw: bytes, start: int, where: str) -> str:
    """Decode strictly; `start` is the position of `raw` in the (decompressed) file."""
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        raise _not_utf8(e, start, where) from e


def _not_utf8(error: UnicodeDecodeError, start: int, where: str) -> DataError:
    """Return what to say of bytes that begin at the position `start` of a file."""
    raw = error.object
    utf16 = start == 0 and raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "UTF-16" if utf16 else "ENCODING"
    return DataError(
        f"{where}: not UTF-8 at byte {start + error.start} (0x{raw[error.start]:02x}); convert it, "
        f"for instance with iconv -f {encoding} -t UTF-8"
    )


def _json_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
