"""Lines of a terminal or a pipe -> entries: a line, or several that belong together.

A backslash at the end of a line goes on in the next one; three quotes begin a text of any number of
lines, which three quotes end.
"""

import contextlib
import sys
from collections.abc import Callable
from typing import NamedTuple

from mlxgpt.errors import DataError

_QUOTES = '"""'
FIRST, NEXT = "> ", ". "
"""What is shown where a line is awaited, and where one more is."""


class Entry(NamedTuple):
    """What was typed up to where it ends."""

    text: str
    quoted: bool
    """Between three quotes: a text, whatever it begins with."""


class Entries:
    """Puts lines together."""

    def __init__(self, read_line: Callable[[str], str]) -> None:
        """`read_line` takes what to show and returns a line without its end; it raises `EOFError`
        where there are no more."""
        self._read_line = read_line

    def next(self) -> Entry | None:
        """Return the next entry, not empty; None at the end.

        What the end of the input cuts short counts as it is.
        """
        while True:
            try:
                line = self._read_line(FIRST)
            except EOFError:
                return None
            opened = line.lstrip()
            quoted = opened.startswith(_QUOTES)
            text = self._quoted(opened[len(_QUOTES) :]) if quoted else self._joined(line)
            if text.strip():
                return Entry(text, quoted)

    def _joined(self, line: str) -> str:
        lines = []
        while _goes_on(line):
            lines.append(line[:-1])
            try:
                line = self._read_line(NEXT)
            except EOFError:
                return "\n".join(lines)
        return "\n".join([*lines, line])

    def _quoted(self, line: str) -> str:
        lines = []
        while not line.rstrip().endswith(_QUOTES):
            lines.append(line)
            try:
                line = self._read_line(NEXT)
            except EOFError:
                return "\n".join(lines)
        return "\n".join([*lines, line.rstrip()[: -len(_QUOTES)]]).strip("\n")


def terminal_line(shown: str) -> str:
    """Read a line from the terminal, with what was typed before at hand where there is readline."""
    if not sys.stdout.isatty():  # the answers go to a file: what is shown must not
        print(shown, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return _unicode(line.removesuffix("\n"))
    return _unicode(input(shown))


def piped_line(shown: str) -> str:  # noqa: ARG001 (nobody is there to see it)
    """Read a line from standard input. Raises `DataError` for one that is not UTF-8."""
    if sys.stdin is None:
        raise DataError("standard input is closed; a chat reads its questions there")
    raw = sys.stdin.buffer.readline()
    if not raw:
        raise EOFError
    try:
        return raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as e:
        raise DataError(f"standard input is not UTF-8 (0x{raw[e.start]:02x} in a line)") from e


def use_readline() -> None:
    """Let arrow keys edit a line and find earlier ones, where Python was built with that."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 (its import is what it takes)


def _goes_on(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _unicode(line: str) -> str:
    if any("\udc80" <= character <= "\udcff" for character in line):
        raise DataError("what was typed is not UTF-8; is this terminal set to it?")
    return line
