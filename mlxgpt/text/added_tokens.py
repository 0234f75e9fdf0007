"""Text -> ordinary stretches and added tokens; knows nothing of how the stretches are encoded.

An added token is a literal with an id of its own, beside what the model learned. A special one is a
control signal (end of text, start of a message): it is found in a text only if the caller allows
it, so that text from outside cannot speak with the voice of the program.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

import regex

from mlxgpt.errors import TokenizerError, did_you_mean
from mlxgpt.text.pipeline.normalizers import Normalizer, normalize
from mlxgpt.text.pipeline.unsupported import Unsupported

AllowedSpecial = Literal["all"] | Collection[str]

# As in the `tokenizers` library: to Python's `re`, "²" is of a word and an accent is not, and to
# `str.strip`, U+001C is a space.
_Tree: TypeAlias = "dict[str, _Tree]"
_LONGEST_IN_TREE = 200
"""Characters of a literal up to which expressions may nest."""
_WORD, _SPACE, _NO_SPACE = regex.compile(r"\w"), regex.compile(r"\s"), regex.compile(r"\S")


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
    """Is looked for in normalized text, after the tokens that have this off."""


@final
class AddedTokens:
    """All added tokens of a tokenizer, ordered by id."""

    def __init__(
        self, tokens: Iterable[AddedToken], normalizers: tuple[Normalizer, ...] = ()
    ) -> None:
        """Take the tokens, and the normalizers that stretches of text pass through.

        Raises `Unsupported` if two literals that are looked for after normalizing are the same
        then, or one is empty.
        """
        self.tokens = tuple(sorted(tokens, key=lambda token: token.id))
        self.normalizers = normalizers
        self._by_content = {token.content: token for token in self.tokens}
        self._always = frozenset(t.content for t in self.tokens if not t.special)
        self._special = frozenset(t.content for t in self.tokens if t.special)
        self._literals = {t.content: t.content for t in self.tokens}
        self._literals |= {
            t.content: normalize(normalizers, t.content) for t in self.tokens if t.normalized
        }
        later = [self._literals[t.content] for t in self.tokens if t.normalized]
        if not all(later) or len(set(later)) != len(later):
            raise Unsupported("added_tokens that a normalizer makes empty or the same")
        self._finders: dict[frozenset[str], tuple[_Finder | None, _Finder | None]] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return AddedTokens, (self.tokens, self.normalizers)

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
        """Yield `text` in order as normalized stretches, and the wanted tokens between them.

        Tokens that are not `normalized` are found first, in the text as it is; the others in what
        is left, after it was normalized, as they themselves are. Where several literals match, the
        leftmost wins, and of those that start there the longest. Inside a literal that is not
        wanted no other one is found.
        """
        plain, later = self._finders_for(wanted)
        for piece in [text] if plain is None else _cut_once(text, plain):
            if isinstance(piece, AddedToken):
                yield piece
                continue
            piece = normalize(self.normalizers, piece)
            if later is not None:
                yield from _cut_once(piece, later)
            elif piece:
                yield piece

    def _finders_for(self, wanted: frozenset[str]) -> "tuple[_Finder | None, _Finder | None]":
        if wanted not in self._finders:
            plain: dict[str, AddedToken] = {}
            later: dict[str, AddedToken] = {}
            for name, literal in self._literals.items():
                token = self._by_content[name]
                (later if token.normalized else plain)[literal] = token
            self._finders[wanted] = (_finder(plain, wanted), _finder(later, wanted))
        return self._finders[wanted]


class _Finder(NamedTuple):
    expression: re.Pattern[str]
    tokens: dict[str, AddedToken | None]
    """By the literal that was found; None where it stays text."""


def _finder(all_tokens: dict[str, AddedToken], wanted: frozenset[str]) -> _Finder | None:
    tokens = {
        literal: token if token.content in wanted else None for literal, token in all_tokens.items()
    }
    if not any(tokens.values()):
        return None
    longest_first = sorted(tokens, key=lambda literal: (-len(literal), literal))
    if len(longest_first[0]) > _LONGEST_IN_TREE:
        return _Finder(re.compile("|".join(map(re.escape, longest_first))), tokens)
    tree: _Tree = {}
    for literal in longest_first:
        node = tree
        for character in literal:
            node = node.setdefault(character, {})
        node[""] = {}
    return _Finder(re.compile(_any_of(tree)), tokens)


def _any_of(tree: "_Tree") -> str:
    """Return an expression for all literals in the tree that prefers the longest."""
    branches = [re.escape(c) + _any_of(node) for c, node in tree.items() if c]
    if not branches:
        return ""
    if len(branches) == 1 and "" not in tree:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if '' in tree else ''}"


def _cut_once(text: str, finder: _Finder) -> Iterator[str | AddedToken]:
    done = 0
    spaces_end = 0  # of the white space that was looked at last: long runs hold many tokens
    for match in finder.expression.finditer(text):
        start, stop = match.span()
        token = finder.tokens[match.group()]
        if token is None:
            continue
        if token.single_word and (_is(_WORD, text, start - 1) or _is(_WORD, text, stop)):
            continue
        if token.lstrip:
            while start > done and _is(_SPACE, text, start - 1):
                start -= 1
        if token.rstrip:
            if stop > spaces_end:
                beyond = _NO_SPACE.search(text, stop)
                spaces_end = beyond.start() if beyond else len(text)
            stop = max(stop, spaces_end)
        if done < start:
            yield text[done:start]
        yield token
        # As in the library: a token in the white space that the one before took away is found
        # nevertheless, and the text goes on behind it.
        done = stop
    if done < len(text):
        yield text[done:]


def _is(kind: "regex.Pattern[str]", text: str, at: int) -> bool:
    return 0 <= at < len(text) and kind.match(text[at]) is not None
