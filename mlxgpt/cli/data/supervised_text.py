r"""Ids, and which of them are learned -> lines for a terminal that show both, and every sign.

What a terminal cannot show truly is spelled with a backslash, as in `mlxgpt tokenizer show`: `\n`
(and the line ends there), `\\`, `\x1b`. A control token stands as itself; a text that merely looks
like one has a backslash in front. What is learned has a colour, or stands between two marks, anew
in each line.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, final

from rich.cells import cell_len
from rich.text import Text

from mlxgpt.cli.tokenizer.pieces import Sign, output_encoding, spell

if TYPE_CHECKING:
    from mlxgpt.text import Tokenizer

_LEARNED = ("black on color(117)", "white on color(18)")
_GIVEN = ("", "magenta")
"""Styles of text and of control tokens; they differ in the palette of 16, too."""
_LEAST_WIDTH = 12
"""Columns of a line even in a narrow terminal: the longest spelling and two marks."""


@dataclass(frozen=True)
class Stretch:
    """Ids side by side that are all learned, or all given; a control token is one of its own."""

    data: bytes
    is_learned: bool
    is_special: bool = False


@dataclass(frozen=True)
class _Cell:
    text: str
    width: int
    is_learned: bool
    style: str
    ends: bool = False
    """Whether the line ends behind it."""


def stretches(
    tokenizer: "Tokenizer", ids: Sequence[int], supervised: Sequence[bool]
) -> list[Stretch]:
    """Cut ids where they begin, or cease, to be learned, and around control tokens."""
    specials = set(tokenizer.special_tokens.values())
    result: list[Stretch] = []
    run: list[int] = []
    for place, (token, learned) in enumerate(zip(ids, supervised, strict=True)):
        if token in specials:
            result.append(Stretch(tokenizer.token_bytes(token), bool(learned), True))
            continue
        run.append(token)
        last = place + 1 == len(ids) or ids[place + 1] in specials
        if last or supervised[place + 1] != learned:
            data = b"".join(map(tokenizer.token_bytes, run))
            result.append(Stretch(data, bool(learned)))
            run = []
    return result


@final
class SupervisedText:
    """Stretches of a text, cut into lines."""

    def __init__(self, literals: Sequence[str], *, colour: bool, width: int) -> None:
        """`literals` are those of the control tokens; lines have at most `width` columns."""
        self.encoding = output_encoding()
        self.marks = "" if colour else _marks(self.encoding)
        self._literals = [literal for literal in literals if literal]
        self._width = max(_LEAST_WIDTH, width)

    @property
    def legend(self) -> str:
        """How the learned part is to be told from the rest, in words."""
        return f"between {self.marks[0]} and {self.marks[1]}" if self.marks else "in colour"

    def lines(self, parts: Sequence[Stretch]) -> list[Text]:
        """Return the lines of a text; one that is too long goes on in the next, if possible at a
        space."""
        line: list[_Cell] = []
        result: list[Text] = []
        for part in parts:
            for cell in self._cells(part):
                line.append(cell)
                if cell.ends:
                    result += self._fitted(line)
                    line = []
        return result + (self._fitted(line) if line else [])

    def plain(self, text: str) -> list[Text]:
        """Return the lines of a text without line ends that can be printed as it is."""
        return self._fitted([_Cell(sign, cell_len(sign), False, "") for sign in text])

    def numbers(self, ids: Sequence[int], supervised: Sequence[bool]) -> list[Text]:
        """Return lines of ids, the learned ones marked like their text."""
        cells: list[_Cell] = []
        for number, learned in zip(ids, map(bool, supervised), strict=True):
            word = str(int(number))
            inside = bool(self.marks and cells and cells[-1].is_learned and learned)
            if cells:
                cells.append(_Cell(" ", 1, inside, ""))
            cells.append(_Cell(word, len(word), learned, self._style(learned, False)))
        return self._fitted(cells, at_spaces=True)

    def _cells(self, part: Stretch) -> Iterator[_Cell]:
        style = self._style(part.is_learned, part.is_special)
        for text, is_spelling in self._signs(part):
            spelled = " bold" if is_spelling and not self.marks else ""
            ends = text == "\\n"
            yield _Cell(text, cell_len(text), part.is_learned, (style + spelled).strip(), ends)

    def _signs(self, part: Stretch) -> list[Sign]:
        signs = list(spell(part.data, encoding=self.encoding))
        if part.is_special:
            return signs
        text = part.data.decode("utf-8", "surrogateescape")
        looks = {place for literal in self._literals for place in _found(text, literal)}
        for place, (sign, is_spelling) in enumerate(signs):
            if not is_spelling and (place in looks or (self.marks and sign in self.marks)):
                signs[place] = (f"\\{sign}", True)
        return signs

    def _style(self, is_learned: bool, is_special: bool) -> str:
        return "" if self.marks else (_LEARNED if is_learned else _GIVEN)[is_special]

    def _fitted(self, cells: list[_Cell], *, at_spaces: bool = False) -> list[Text]:
        """Cut into lines that fit; `at_spaces`: a space at the end of a line only parts words."""
        result = []
        start = 0
        while start < len(cells):
            stop = self._stop(cells, start)
            blank = at_spaces and cells[stop - 1].text == " "
            result.append(self._line(cells[start : stop - blank]))
            start = stop
        return result

    def _stop(self, cells: list[_Cell], start: int) -> int:
        """Return where the line that begins at `start` ends; it holds at least one cell."""
        used, space = 0, start
        for place in range(start, len(cells)):
            cell = cells[place]
            opens = cell.is_learned and (place == start or not cells[place - 1].is_learned)
            used += cell.width + len(self.marks) * opens
            if used > self._width and place > start:
                return space if space > start else place
            if cell.text == " ":
                space = place + 1
        return len(cells)

    def _line(self, cells: list[_Cell]) -> Text:
        line = Text()
        for learned, run in groupby(cells, lambda cell: cell.is_learned):
            if self.marks and learned:
                line.append(self.marks[0])
            for style, same in groupby(run, lambda cell: cell.style):
                line.append("".join(cell.text for cell in same), style)
            if self.marks and learned:
                line.append(self.marks[1])
        return line


def _marks(encoding: str) -> str:
    try:
        "⟦⟧".encode(encoding)
    except UnicodeEncodeError:
        return "[]"
    return "⟦⟧"


def _found(text: str, literal: str) -> Iterator[int]:
    place = text.find(literal)
    while place >= 0:
        yield place
        place = text.find(literal, place + 1)
