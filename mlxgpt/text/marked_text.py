"""A text in which some special tokens act and others are mere characters -> ids.

Whoever puts such a text together lets the parts from outside be marked first: one character of the
private use area goes behind the first character of what is, or could become, the literal of a
special token. So the tokenizer does not find it, and the mark is taken out before anything else
looks at the text.
"""

import re
from collections.abc import Sequence
from typing import Any, final

from mlxgpt.errors import TokenizerError
from mlxgpt.seeding import derive
from mlxgpt.text.added_tokens import AddedToken
from mlxgpt.text.own_engine import OwnEngine
from mlxgpt.text.pipeline.normalizers import normalize
from mlxgpt.text.tokenizer import Tokenizer

_PRIVATE_USE = range(0xE000, 0xF900)


@final
class Marking:
    """Marks what comes from outside, and encodes the text that was made of it."""

    def __init__(self, tokenizer: Tokenizer, incoming: str) -> None:
        """`incoming` is all of which the text will be made; no character of it can be the mark.

        Raises `TokenizerError` in the odd case that none is left.
        """
        self._tokenizer = tokenizer
        self._engine = tokenizer._engine
        self._added = self._engine.added
        special = [token for token in self._added.tokens if token.special]
        names = [re.escape(token.content) for token in special if len(token.content) > 1]
        firsts = {re.escape(token.content[0]) for token in special if len(token.content) > 1}
        self._literal = re.compile(f"(?=(?:{'|'.join(names)})).", re.DOTALL) if names else None
        self._first = re.compile("|".join(sorted(firsts))) if firsts else None
        self._odd = [t for t in special if t.normalized or len(t.content) == 1]
        self._silent: set[str] = set()
        free = (chr(code) for code in _PRIVATE_USE)
        mark = next((c for c in free if c not in incoming and _escaped(c) not in incoming), None)
        if mark is None:
            raise TokenizerError("the text uses up all characters for private use; take some out")
        self._mark = mark

    def literals(self, value: Any) -> Any:
        """Return a copy of plain JSON in which each literal of a special token is marked."""
        return self._marked(self._literal, value)

    def beginnings(self, value: Any) -> Any:
        """Return a copy with a mark behind every character with which such a literal begins.

        Here none can be put together out of parts either, but who looks for `</end>` in it may not
        find it.
        """
        return self._marked(self._first, value)

    def is_in(self, text: str) -> bool:
        """Return whether there is a mark in a text."""
        return self._mark in text

    def choose(self, by_beginnings: str, by_literals: str) -> str:
        """Return the one of two texts to encode that says what was meant, and is safe.

        They were made in the same way of differently marked parts. If they say the same, the first
        is both. If not, whoever made them looked at what is marked, and the second says what was
        meant; it is taken if the first shows that its special tokens are none of the parts'. Raises
        `TokenizerError` otherwise.
        """
        if self._plain(by_beginnings) == self._plain(by_literals):
            return by_beginnings
        if self.acting(by_beginnings) == self.acting(by_literals):
            return by_literals
        raise TokenizerError("a control token would be put together out of parts of a message")

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, in which special tokens act where they are not marked."""
        plain = self._plain(text)
        if not self._silent and self.acting(text) == self.acting(plain):
            return self._tokenizer.encode(plain, "all")
        ids: list[int] = []
        at_start = True
        for piece in self._cut(text):
            if isinstance(piece, AddedToken):
                ids.append(piece.id)
            else:
                ids.extend(self._stretch(piece.replace(self._mark, ""), at_start))
            at_start = False
        return ids

    def encode_parts(
        self, parts: Sequence[str], *, dropout: float = 0.0, seed: int = 0
    ) -> list[list[int]]:
        """Return the ids of each part of a text, encoded apart; nothing is merged across borders.

        With `dropout` every stretch between special tokens has draws of its own.
        """
        if len(parts) == 1 and not dropout:
            return [self.encode(parts[0])]
        result: list[list[int]] = []
        at_start, count = True, 0
        for part in parts:
            ids: list[int] = []
            for piece in self._cut(part):
                if isinstance(piece, AddedToken):
                    ids.append(piece.id)
                else:
                    text = piece.replace(self._mark, "")
                    if dropout:
                        own = derive(seed, "chat-stretch", count) % 2**63
                        ids.extend(self._tokenizer.encode(text, dropout=dropout, seed=own))
                    else:
                        ids.extend(self._stretch(text, at_start))
                at_start, count = False, count + 1
            result.append(ids)
        return result

    def unescaped(self, text: str) -> str:
        """Return a text with its marks as they are, also where a template wrote them as JSON."""
        return text.replace(_escaped(self._mark), self._mark)

    def _cut(self, text: str) -> list[str | AddedToken]:
        text = text.replace(_escaped(self._mark), self._mark)  # JSON in ASCII
        return list(self._added.cut(text, self._added.wanted("all") - self._silent))

    def acting(self, text: str) -> list[int]:
        """Return the ids of the special tokens that act in a marked text."""
        return [t.id for t in self._cut(text) if isinstance(t, AddedToken) and t.special]

    def _plain(self, text: str) -> str:
        return text.replace(_escaped(self._mark), "").replace(self._mark, "")

    def _stretch(self, text: str, at_start: bool) -> list[int]:
        """Encode normalized text without special tokens.

        The library offers nothing between it and the whole, where each stretch is a text.
        """
        if not isinstance(self._engine, OwnEngine):
            return self._tokenizer.encode(text)
        ids, _ = self._engine._encode_stretch(text, None, 0, at_start)
        return list(map(int, ids))

    def _marked(self, places: re.Pattern[str] | None, value: Any) -> Any:
        if isinstance(value, str):
            if places is not None:
                value = places.sub(lambda found: found[0] + self._mark, value)
            self._silence(value)
            return value
        if isinstance(value, list):
            return [self._marked(places, item) for item in value]
        if isinstance(value, dict):
            return {
                self._marked(places, name): self._marked(places, item)
                for name, item in value.items()
            }
        return value

    def _silence(self, marked: str) -> None:
        """Let those tokens act nowhere that a mark does not hide: literals of one character, and
        such as a normalizer makes out of other characters."""
        for token in self._odd:
            normalizers = self._added.normalizers if token.normalized else ()
            if normalize(normalizers, token.content) in normalize(normalizers, marked):
                self._silent.add(token.content)


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"
