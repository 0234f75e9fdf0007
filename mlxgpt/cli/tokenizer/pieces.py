r"""Tokens -> lines for a terminal that show each border and every byte, with or without colours.

What a terminal cannot show truly is spelled with a backslash: `\n`, `\t`, `\\`, `\xe6` for a byte
that is no whole character, `\u0301` for a character that is invisible, that the encoding of the
output lacks, or that would melt into the token before it.
"""

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import final

from rich.cells import cell_len
from rich.text import Text

Sign = tuple[str, bool]
"""What is shown for one character or byte, and whether that is a spelling with a backslash."""

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_NOTHING = ("\\(nothing)", True)
# Two of the 256 colours that also differ in the palette of 16; black letters fit on both.
_COLOURS = ("black on color(117)", "black on color(222)")
_SPECIAL_COLOURS = ("white on color(90)", "white on color(18)")
_SPELLED = " bold"
_SIGNS_SHOWN = 20
"""Of one token in a table."""
_LEAST_WIDTH = 12
"""Columns of a line even in a narrow terminal: the longest spelling and two borders."""


@dataclass(frozen=True)
class Piece:
    """One token (or its id) as it will be shown."""

    signs: tuple[Sign, ...]
    is_special: bool = False
    """Whether it is a special token, which acts as one and has colours of its own."""

    @property
    def width(self) -> int:
        """Columns of the terminal that it takes."""
        return sum(cell_len(text) for text, _ in self.signs)


def spell(token: bytes, *, border: str = "", encoding: str = "utf-8") -> tuple[Sign, ...]:
    """Return what to show for the bytes of a token; a `border` sign within it gets a backslash."""
    signs: list[Sign] = []
    alone = True  # there is no character before this one that a mark could sit on
    for character in token.decode("utf-8", "surrogateescape"):
        sign = _sign(character, alone, border, encoding)
        signs.append(sign)
        alone = sign[1]
    return tuple(signs)


def _sign(character: str, alone: bool, border: str, encoding: str) -> Sign:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}", True
    if character in _NAMED:
        return _NAMED[character], True
    if border and character == border:
        return f"\\{character}", True
    mark = unicodedata.category(character).startswith("M") or cell_len(character) == 0
    if character.isprintable() and not (alone and mark) and _fits(character, encoding):
        return character, False
    return (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"), True


def _fits(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


def output_encoding() -> str:
    """Return the encoding of standard output."""
    return getattr(sys.stdout, "encoding", None) or "utf-8"


@final
class Ribbon:
    """Pieces one after the other, cut into lines; colours part them, or else a border sign."""

    def __init__(self, *, colour: bool, width: int | None) -> None:
        """Show in `colour` or plainly, in lines of at most `width` columns (None: one line)."""
        self.encoding = output_encoding()
        self.border = "" if colour else "│" if _fits("│", self.encoding) else "|"
        self._width = width

    def token(self, token: bytes, is_special: bool = False) -> Piece:
        """Return the piece of a token; one without bytes is seen too."""
        if not token:
            return Piece((_NOTHING,), is_special)
        return Piece(spell(token, border=self.border, encoding=self.encoding), is_special)

    def number(self, number: int, is_special: bool = False) -> Piece:
        """Return the piece of an id."""
        return Piece(((str(number) if self.border else f" {number} ", False),), is_special)

    def lines(self, pieces: Iterable[Piece], indent: int) -> list[Text]:
        """Return the lines, at least one, for a place `indent` columns from the left.

        A line is cut between tokens. A token that is longer than a line is cut within; in plain
        lines there is no border where it goes on.
        """
        room = None
        if self._width is not None:
            room = max(_LEAST_WIDTH, self._width - indent) - len(self.border)
        lines = _Lines(room, self.border)
        for i, piece in enumerate(pieces):
            lines.add(piece, (_SPECIAL_COLOURS if piece.is_special else _COLOURS)[i % 2])
        return lines.finish()


class _Lines:
    """Lines that are being filled; `room` is what fits into one, without its closing border."""

    def __init__(self, room: int | None, border: str) -> None:
        self._room, self._border = room, border
        self._done: list[Text] = []
        self._line, self._used = Text(), 0
        self._run: list[str] = []
        self._run_style = ""

    def add(self, piece: Piece, style: str) -> None:
        if self._used and not self._fits(len(self._border) + piece.width):
            self._end(self._border)
        self._put(self._border, "")
        for text, is_spelling in piece.signs:
            if not self._fits(cell_len(text)):
                self._end("")  # this token goes on in the next line
            colour = "" if self._border else style + _SPELLED * is_spelling
            self._put(text, colour)

    def finish(self) -> list[Text]:
        if self._used or not self._done:
            self._end(self._border if self._used else "")
        return self._done

    def _fits(self, columns: int) -> bool:
        return self._room is None or self._used + columns <= self._room

    def _put(self, text: str, style: str) -> None:
        if style != self._run_style:
            self._end_run()
        self._run.append(text)
        self._run_style = style
        self._used += cell_len(text)

    def _end_run(self) -> None:
        self._line.append("".join(self._run), self._run_style)
        self._run.clear()

    def _end(self, border: str) -> None:
        self._end_run()
        self._done.append(self._line.append(border))
        self._line, self._used = Text(), 0


def beside(labels: Sequence[str], lines: Sequence[Text]) -> list[Text]:
    """Put the first line behind its labels, and the others below it, at the same indent."""
    label = "  ".join([*labels, ""])
    indents = [label, *[" " * len(label)] * (len(lines) - 1)]
    return [Text(indent).append_text(line) for indent, line in zip(indents, lines, strict=True)]


def between_borders(token: bytes) -> str:
    """Return a token on one line for a table, if it is long by its two ends."""
    ribbon = Ribbon(colour=False, width=None)
    signs = [text for text, _ in ribbon.token(token).signs]
    if len(signs) > _SIGNS_SHOWN:
        signs[_SIGNS_SHOWN // 2 : -_SIGNS_SHOWN // 2] = ["…"]
    return "".join([ribbon.border, *signs, ribbon.border])
