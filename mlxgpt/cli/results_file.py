"""Results of requests -> a file of JSON lines that a killed run leaves in a state to go on from.

While a run goes on, results are appended as they are finished. A run that ends well leaves them in
the order of the requests: the bytes of the file do not depend on how often it was interrupted.
"""

import contextlib
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from mlxgpt.atomic import new_file
from mlxgpt.cli.prompts_file import Request, parse_object
from mlxgpt.errors import DataError

_BEGINNING = b'{"line": '
"""How every result begins, by which half of one is known."""


@dataclass(frozen=True)
class _Kept:
    """Where a result stands in the file."""

    line: int
    choice: int
    key: str
    failed: bool
    offset: int
    size: int


class ResultsFile:
    """The results of a list of requests, in a file that nobody else writes to meanwhile."""

    def __init__(self, path: Path, requests: Sequence[Request]) -> None:
        """Open the file, or make it, and look at what an earlier run has left in it.

        Nothing in it is changed before `resume`. Raises `DataError` if it holds anything but
        results of these requests, or if another run is writing to it.
        """
        self._path = path.expanduser().resolve()
        if self._path.exists() and not self._path.is_file():
            raise DataError(f"{path} is no regular file; --out - is standard output")
        self._requests = {request.line: request for request in requests}
        new = not self._path.exists()
        self._file = _locked(self._path, path)
        self._remove_if_empty = new
        try:
            self._kept, self._torn = self._scan(path)
        except BaseException:
            self.close()
            raise

    def resume(self, keys: Mapping[int, str]) -> set[int]:
        """Return the numbers of the lines that are done, and make the file ready for the others.

        `keys` has for each line what its results depend on. Half a line, a request of which some
        texts are missing, and those that failed are taken out. Raises `DataError`, with the file as
        it was, for a result with another key.
        """
        for kept in self._kept:
            if kept.key != keys[kept.line] and not kept.failed:
                raise DataError(
                    f"{self._path} has results of another model or other settings (such as that of "
                    f"line {kept.line}): give another --out, or remove it"
                )
        groups: dict[int, list[_Kept]] = {}
        for kept in self._kept:
            groups.setdefault(kept.line, []).append(kept)
        whole = [
            kept
            for line, group in groups.items()
            if len(group) == self._requests[line].params.n and not any(k.failed for k in group)
            for kept in group
        ]
        if self._torn or len(whole) < len(self._kept):
            self._rewrite(whole)
        return {kept.line for kept in self._kept}

    def put(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Append all results of one request. Raises `DataError` if the disk refuses."""
        try:
            for result in results:
                raw = json_line(result)
                offset = self._file.seek(0, os.SEEK_END)
                self._file.write(raw)
                self._kept.append(_kept(result, offset, len(raw)))
            self._file.flush()
        except OSError as e:
            raise DataError(
                f"cannot write {self._path}: {e.strerror or e}; what is finished is kept, and the "
                "same command goes on"
            ) from e

    def finish(self) -> None:
        """Put the results into the order of the requests, in one go."""
        ordered = sorted(self._kept, key=lambda kept: (kept.line, kept.choice))
        if ordered != self._kept:
            self._rewrite(ordered)

    def close(self) -> None:
        """Let go of the file; one that was made for nothing vanishes."""
        if self._remove_if_empty and not os.fstat(self._file.fileno()).st_size:
            self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what could not be written was told
            self._file.close()

    def __enter__(self) -> "ResultsFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def _scan(self, shown: Path) -> tuple[list[_Kept], bool]:
        """Return the results in the file, and whether half of one comes after them."""
        kept: list[_Kept] = []
        seen: set[tuple[int, int]] = set()
        offset = 0
        self._file.seek(0)
        for number, raw in enumerate(self._file, start=1):
            if not raw.endswith(b"\n") and _BEGINNING.startswith(raw[: len(_BEGINNING)]):
                return kept, True
            result = self._parse(raw, f"{shown}, line {number},")
            kept.append(_kept(result, offset, len(raw)))
            place = (kept[-1].line, kept[-1].choice)
            if place in seen:
                raise DataError(f"{shown}, line {number}, has a result that is there already")
            seen.add(place)
            offset += len(raw)
        return kept, False

    def _parse(self, raw: bytes, where: str) -> dict[str, Any]:
        """Return a result. Raises `DataError` for what is none, or is one of another request."""
        rest = "give another --out, or remove the file"
        try:
            result = parse_object(raw, where)
            ours = raw.startswith(_BEGINNING) and raw.endswith(b"\n")
        except DataError:
            ours, result = False, {}
        types = {"line": int, "choice": int, "request": str}
        if not ours or not all(type(result.get(name)) is kind for name, kind in types.items()):
            raise DataError(f"{where} is no result of mlxgpt generate: {rest}")
        request = self._requests.get(result["line"])
        if request is None:
            raise DataError(f"{where} is of line {result['line']}, which has no prompt: {rest}")
        for name in ("prompt", "messages", "id"):
            if result.get(name) != request.given.get(name):
                raise DataError(
                    f"{where} has another '{name}' than line {request.line} of the prompts: {rest}"
                )
        return result

    def _rewrite(self, kept: Sequence[_Kept]) -> None:
        """Replace the file by one with these results, in this order."""
        moved: list[_Kept] = []
        with new_file(self._path) as temporary:
            new = _locked(temporary, self._path)
            shutil.copymode(self._path, temporary)
            for each in kept:
                self._file.seek(each.offset)
                moved.append(replace(each, offset=new.tell()))
                new.write(self._file.read(each.size))
            new.flush()
        self._file.close()
        self._file, self._kept, self._torn = new, moved, False


class ResultsInOrder:
    """The results of a list of requests on standard output, in their order."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._lines = [request.line for request in requests]
        self._waiting: dict[int, Sequence[Mapping[str, Any]]] = {}

    def put(self, results: Sequence[Mapping[str, Any]]) -> None:
        """Take the results of one request, at least one; print what has none missing before it."""
        self._waiting[results[0]["line"]] = results
        while self._lines and self._lines[0] in self._waiting:
            for result in self._waiting.pop(self._lines.pop(0)):
                sys.stdout.write(json_line(result).decode())
        sys.stdout.flush()


def json_line(content: Mapping[str, Any]) -> bytes:
    """Return an object as a line of JSON. Halves of surrogate pairs come out as they came in."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(content, allow_nan=False).encode() + b"\n"


def _kept(result: Mapping[str, Any], offset: int, size: int) -> _Kept:
    return _Kept(
        result["line"], result["choice"], result["request"], "error" in result, offset, size
    )


def _locked(path: Path, shown: Path) -> IO[bytes]:
    """Open a file to read and write, or make it. Raises `DataError` if another run has it."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        replaced = not os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except BlockingIOError:
        replaced = True
    except OSError:
        replaced = False  # some network disks know no locks
    if replaced:
        file.close()
        raise DataError(f"another run is writing to {shown}")
    return file
