r"""Code points -> their classes (letter, number, white space...), as the `regex` module sees them.

Taken from the installed module when a process first needs them (15 ms), so that the kernels and the
plain tier never disagree, whatever version of Unicode it knows.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import regex

OTHER, LETTER, NUMBER, APOSTROPHE, BLANK, SPACE, LINE_END, EDGE = range(8)
r"""`[^\s\p{L}\p{N}']`, `\p{L}`, `\p{N}`, `'`, U+0020, `[^\S\r\n ]`, `[\r\n]`; EDGE is no character:
it stands before and behind a text."""

_CODE_POINTS = 0x110000
_PAGE = 256
_PAGES = 0x200000 // _PAGE  # four bytes that are not UTF-8 decode to 0x1FFFFF at most


class ClassTable(NamedTuple):
    """The class of code point c is `classes[pages[c >> 8] << 8 | c & 255]`; page 0 is row 0."""

    pages: np.ndarray
    """uint8 (8192,)"""
    classes: np.ndarray
    """uint8 (256 rows,)"""


@cache
def class_table() -> ClassTable:
    """Return the classes of all code points, those of surrogates and beyond Unicode being OTHER."""
    classes = np.zeros(_CODE_POINTS, np.uint8)
    everything = np.arange(_CODE_POINTS, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    for kind, expression in ((LETTER, r"\p{L}+"), (NUMBER, r"\p{N}+"), (SPACE, r"\s+")):
        for match in regex.finditer(expression, everything):
            classes[match.start() : match.end()] = kind
    classes[ord("'")] = APOSTROPHE
    classes[ord(" ")] = BLANK
    classes[[0x0A, 0x0D]] = LINE_END
    pages = np.zeros(_PAGES, np.uint8)
    row_of: dict[bytes, int] = {}
    for page, row in enumerate(classes.reshape(-1, _PAGE)):
        pages[page] = row_of.setdefault(row.tobytes(), len(row_of))
    pages[_CODE_POINTS // _PAGE :] = row_of.setdefault(bytes(_PAGE), len(row_of))
    assert len(row_of) <= 256, "too many kinds of pages for one byte"
    return ClassTable(pages, np.frombuffer(bytearray().join(row_of), np.uint8))
