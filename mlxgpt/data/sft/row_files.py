"""A `.jsonl` or `.json` file -> its rows with their lines. What a row means is not known here."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from mlxgpt.data.document import BOM, split_lines
from mlxgpt.data.sft.json_values import ROW_JSON, excerpt, not_json, type_name
from mlxgpt.data.source_file import JSONL_SUFFIXES, SourceFile
from mlxgpt.errors import DataError

ENDINGS = ("", ".gz", ".zst", ".zstd")
"""What may stand behind `.jsonl`, `.ndjson` or `.json`."""
_SUFFIXES = (*sorted(JSONL_SUFFIXES), ".json")
_POINTER = b"version https://git-lfs"
_BLANK = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class RawRow:
    """One JSON value of a file."""

    file: Path
    line: int
    """Where it begins, counted from 1; blank lines count."""
    value: Any

    @property
    def where(self) -> str:
        """`FILE:LINE`, as messages begin."""
        return f"{self.file}:{self.line}"


def read_rows(path: str | Path) -> Iterator[RawRow]:
    """Yield the rows of a file in order.

    `.jsonl` and `.ndjson` hold one value a line. Lines end at `\\n` alone, of `\\r\\n` the `\\r` is
    dropped too; blank lines are passed over. A `.json` file holds an array of rows, or a single
    row that is an object, or one value a line after all: so it is read if its first line is a
    whole value and more follows. Each may be compressed (`.gz`, `.zst`), and begin with a UTF-8
    mark.

    Raises `DataError` naming file and line for what is not UTF-8 or not JSON, for NaN and Infinity
    (which are none), for an object that has a field twice (one of them would be lost), and for
    a file without rows.
    """
    file = Path(path).expanduser()
    source = SourceFile.at(file)
    if file.is_dir():
        raise DataError(f"{file} is a folder; a file of rows was expected")
    if row_suffix(file) is None:
        raise DataError(
            f"{file} is no file of rows: its name must end in .jsonl or .json (also .gz, .zst)"
        )
    _refuse_pointer(source)
    if row_suffix(file) in JSONL_SUFFIXES:
        rows = _read_lines(file, source.chunks())
    else:
        rows = _read_whole(file, source.read())
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise DataError(f"{file} has no rows in it")


def row_suffix(file: Path) -> str | None:
    """Return `.jsonl`, `.ndjson` or `.json` for the name of a file of rows, None for another."""
    name = file.name.lower()
    for ending in ENDINGS:
        for suffix in _SUFFIXES:
            if name.endswith(suffix + ending):
                return suffix
    return None


def _refuse_pointer(source: SourceFile) -> None:
    """Refuse what git-lfs puts in the place of a file, whatever its name promises."""
    head = next(replace(source, compression="none").chunks(len(_POINTER)), b"")
    if head == _POINTER:
        raise DataError(
            f"{source.path}:1: a git-lfs pointer stands in the place of the file; fetch the file "
            "with 'git lfs pull', or download it again"
        )


def _read_lines(file: Path, chunks: Iterator[bytes] | Sequence[bytes]) -> Iterator[RawRow]:
    start = 0
    for number, raw in enumerate(split_lines(chunks), start=1):
        mark = len(BOM) if number == 1 and raw.startswith(BOM) else 0
        line = _decode(raw[mark:], start + mark, file, number).removesuffix("\r")
        start += len(raw) + 1
        if not line.strip(" \t\r"):
            continue
        try:
            value = ROW_JSON.decode(line)
        except (ValueError, RecursionError) as e:
            several = line.strip() in ("{", "[")
            hint = "; a row takes one line here: is this a .json file?" if several else ""
            raise DataError(f"{file}:{number}: {not_json(e)}{hint}") from e
        yield RawRow(file, number, value)


def _read_whole(file: Path, content: bytes) -> Iterator[RawRow]:
    if _is_one_a_line(content):
        yield from _read_lines(file, (content,))
        return
    mark = len(BOM) if content.startswith(BOM) else 0
    text = _decode(content[mark:], mark, file, 1)
    start = _blank(text, 0)
    if text.startswith("[", start):
        yield from _read_array(file, text, start)
    elif start < len(text):
        line = text.count("\n", 0, start) + 1
        try:
            value = ROW_JSON.decode(text)
        except (ValueError, RecursionError) as e:
            raise _damaged(file, line, e) from e
        if not isinstance(value, dict):
            raise DataError(
                f"{file}:{line}: a .json file holds an array of rows, or one row that is an "
                f"object; this is {type_name(value)}"
            )
        yield RawRow(file, line, value)


def _is_one_a_line(content: bytes) -> bool:
    """Say whether the first line is a whole value, and something follows."""
    lines = content.removeprefix(BOM).lstrip().split(b"\n", 1)
    if len(lines) < 2 or not lines[1].strip():
        return False
    try:
        json.loads(lines[0])
    except (ValueError, RecursionError):
        return False
    return True


def _read_array(file: Path, text: str, start: int) -> Iterator[RawRow]:
    """Yield the elements of the array that begins at `start`, one after the other."""
    line = 1
    counted = 0  # up to here the line ends are counted: each is looked at once
    at = _blank(text, start + 1)
    if text.startswith("]", at):
        at += 1
    else:
        while True:
            line += text.count("\n", counted, at)
            counted = at
            try:
                value, at = ROW_JSON.raw_decode(text, at)
            except (ValueError, RecursionError) as e:
                raise _damaged(file, line, e) from e
            yield RawRow(file, line, value)
            at = _blank(text, at)
            if not text.startswith(",", at):
                break
            at = _blank(text, at + 1)
        if not text.startswith("]", at):
            _unexpected(file, text, at, "a ',' or the ']' of the array")
        at += 1
    if (rest := _blank(text, at)) < len(text):
        _unexpected(file, text, rest, "the end of the file behind its array")


def _damaged(file: Path, line: int, error: Exception) -> DataError:
    """Return what to say of a value that begins in `line`; a place that is known is nearer."""
    if isinstance(error, json.JSONDecodeError):
        line = error.lineno
    return DataError(f"{file}:{line}: {not_json(error)}")


def _unexpected(file: Path, text: str, at: int, wanted: str) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    found = excerpt(text, at) if at < len(text) else "the end of the file"
    raise DataError(f"{file}:{line}: not JSON: expected {wanted} at column {column}, found {found}")


def _blank(text: str, at: int) -> int:
    """Return where the blanks that begin at `at` end."""
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


def _decode(raw: bytes, start: int, file: Path, line: int) -> str:
    """Decode strictly; `raw` begins at byte `start` of the file, in line `line`."""
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        line += raw.count(b"\n", 0, e.start)
        utf16 = start == 0 and raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        encoding = "UTF-16" if utf16 else "ENCODING"
        raise DataError(
            f"{file}:{line}: this is not UTF-8 (byte {start + e.start}, 0x{raw[e.start]:02x}); "
            f"convert it, for instance with iconv -f {encoding} -t UTF-8"
        ) from e
