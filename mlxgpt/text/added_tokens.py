"""Text -> ordinary stretches and added tokens; knows nothing of how the stretches are encoded.

An added token is a literal with an id of its own, beside what the model learned. A special one is a
control signal (end of text, start of a message): it is found in a text only if the caller allows
it, so that text from outside cannot speak with the voice of the program.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, final

import regex

from mlxgpt.errors import TokenizerError, did_you_mean

AllowedSpecial = Literal["all"] | Collection[str]

# As in the `tokenizers` library: to Python's `re`, "²" is of a word and an accent is not, and to
# `str.strip`, U+001C is a space.
_WORD, _SPACE = regex.compile(r"\w"), regex.compile(r"\s")


@dataclass(frozen=True, kw_only=True)
class AddedToken:
    """One literal with an id; the flags have the meaning that tokenizer.json gives them."""

    id: int
    content: str
    special: bool = True
    lstrip: bool = False
    """Takes the white space before it with it."""
    rstrip: bool = False
    """Takes the white space after it with it."""
    single_word: bool = False
    """Is found only where no word character touches it."""
    normalized: bool = False
    """Is looked for after the tokens that have this off."""


@final
class AddedTokens:
    """All added tokens of a tokenizer, ordered by id."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self.tokens = tuple(sorted(tokens, key=lambda token: token.id))
        self._by_content = {token.content: token for token in self.tokens}
        self._always = frozenset(t.content for t in self.tokens if not t.special)
        self._special = frozenset(t.content for t in self.tokens if t.special)
        self._finders: dict[frozenset[str], list[re.Pattern[str]]] = {}

    def __reduce__(self) -> tuple[type["AddedTokens"], tuple[tuple[AddedToken, ...]]]:
        return AddedTokens, (self.tokens,)

    def wanted(self, allowed_special: AllowedSpecial) -> frozenset[str]:
        """Return the literals to look for: the allowed special ones and all that are not special.

        Raises `TokenizerError` for a name that is no added token.
        """
        if not isinstance(allowed_special, str):
            for name in allowed_special:
                if name not in self._by_content:
                    known = did_you_mean(name, self._by_content) if self.tokens else ""
                    raise TokenizerError(
                        f"'{name}' is not a special token of this tokenizer{known}"
                    )
            return self._always | frozenset(allowed_special)
        if allowed_special != "all":
            raise TokenizerError(
                f"allowed_special is 'all' or a list of names; got the text '{allowed_special}'"
            )
        return self._always | self._special

    def cut(self, text: str, wanted: frozenset[str]) -> Iterator[str | AddedToken]:
        """Yield `text` in order as stretches without a wanted literal, and the tokens between them.

        Where several literals match, the leftmost wins, and of those that start there the longest.
        """
        pieces: list[str | AddedToken] = [text]
        for finder in self._finders_for(wanted):
            cut: list[str | AddedToken] = []
            for piece in pieces:
                if isinstance(piece, str):
                    cut.extend(self._cut_once(piece, finder))
                else:
                    cut.append(piece)
            pieces = cut
        yield from pieces

    def _finders_for(self, wanted: frozenset[str]) -> list[re.Pattern[str]]:
        if wanted not in self._finders:
            finders = []
            for normalized in (False, True):
                names = [n for n in wanted if self._by_content[n].normalized is normalized]
                names.sort(key=lambda name: (-len(name), name))
                if names:
                    finders.append(re.compile("|".join(map(re.escape, names))))
            self._finders[wanted] = finders
        return self._finders[wanted]

    def _cut_once(self, text: str, finder: re.Pattern[str]) -> Iterator[str | AddedToken]:
        done = 0
        for match in finder.finditer(text):
            start, stop = match.span()
            token = self._by_content[match.group()]
            if start < done:  # the white space that the token before took away
                continue
            if token.single_word and (_is(_WORD, text, start - 1) or _is(_WORD, text, stop)):
                continue
            if token.lstrip:
                while start > done and _is(_SPACE, text, start - 1):
                    start -= 1
            if token.rstrip:
                while _is(_SPACE, text, stop):
                    stop += 1
            if done < start:
                yield text[done:start]
            yield token
            done = stop
        if done < len(text):
            yield text[done:]


def _is(kind: "regex.Pattern[str]", text: str, at: int) -> bool:
    return 0 <= at < len(text) and kind.match(text[at]) is not None
