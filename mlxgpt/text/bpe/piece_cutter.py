r"""Pieces of a document, cut anywhere -> pieces that end where a word ends, whatever text follows.

So a document that is larger than memory can be counted: the words of the pieces are the words of
the whole. In the patterns of `PATTERNS` a letter ends its word if no letter follows, and a digit if
no digit follows: `\p{L}+` and `\p{N}+` (or a part of it) are the end of every alternative that
holds one, each takes all it can, and none looks back. White space is different: what a run of it
gives depends on what comes after the run. Of a regular expression that is not known nothing is
certain, and such a document is held whole.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import final

import regex

from mlxgpt.text.bpe.splitting import PATTERNS

PIECE = 1 << 20
"""Characters that are gathered before a place to cut is looked for."""

# The first character after a border; `(?r)` looks for the last one of a text.
_AFTER_WORD = regex.compile(r"(?r)(?<=\p{L})\P{L}|(?<=\p{N})\P{N}")
_ANY = regex.compile(r"(?rs).")


@final
class PieceCutter:
    """Cuts documents for one pattern; never inside one of the `literals`."""

    def __init__(self, expression: str | None, literals: Collection[str]) -> None:
        """Take the regular expression of the words, or None where each character is a word."""
        self._finder = None
        if expression is None:
            self._finder = _ANY
        elif expression in PATTERNS.values():
            self._finder = _AFTER_WORD
        self._literals = tuple(literals)
        self._longest = max(map(len, literals), default=1)

    def cut(self, document: Iterable[str], piece: int = PIECE) -> Iterator[str]:
        """Yield the text of a document, given in parts, in pieces of `piece` characters or more.

        It is more where one word or one run of white space is longer, and all if nothing is
        certain. The parts hold no lone surrogates.
        """
        held: list[str] = []
        length = 0
        window = ""  # the end of what is held: from where on no place to cut was found yet
        for part in document:
            held.append(part)
            length += len(part)
            window += part
            if length < piece or self._finder is None:
                continue
            at = self._last_border(window, at_start=length == len(window))
            if at is None:
                window = window[-2 * self._longest :]
                continue
            text = "".join(held)
            at += length - len(window)
            yield text[:at]
            window = text[at:]
            held, length = [window], len(window)
        if length:
            yield "".join(held)

    def _last_border(self, text: str, *, at_start: bool) -> int | None:
        """Return the last place to cut `text`, or None; more text may follow it.

        Unless it is `at_start`, the first `longest` characters are not looked at again.
        """
        assert self._finder is not None
        longest = self._longest
        lowest = 1 if at_start else longest
        end = len(text) - longest + 1  # behind it a literal may begin that has not come whole
        while end >= lowest:
            found = self._finder.search(text, 0, end + 1)
            if found is None or found.start() < lowest:
                return None
            at = found.start()
            if not any(
                text.find(literal, max(0, at - len(literal) + 1), at + len(literal) - 1) >= 0
                for literal in self._literals
            ):
                return at
            end = at - 1
        return None
