"""Normalized text -> words, in which BPE may merge: the pre-tokenizers of a tokenizer.json.

Words are real text. ByteLevel, which stands for text by other characters in the library, only
closes the list here: the model works on bytes itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, final

import regex

from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.pipeline.patterns import Pattern, compiled

Behavior = Literal["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
PrependScheme = Literal["always", "first", "never"]

SPACE_MARKER = "\u2581"
"""What SentencePiece writes for a space."""


@dataclass(frozen=True)
class Cut:
    """Cuts at the matches of an expression; what becomes of a match is its `behavior`."""

    expression: str
    """For the `regex` module, without groups."""
    behavior: Behavior
    invert: bool
    json: Mapping[str, Any]
    """The component in the form of the file, such as a Split or Digits."""

    @cached_property
    def compiled(self) -> "regex.Pattern[str]":
        """The compiled expression."""
        return compiled(self.expression)

    @cached_property
    def _isolated(self) -> Splitter:
        return Splitter((self.expression,))

    def split(self, text: str) -> list[str]:
        """Return the pieces of `text`, none of them empty."""
        if self.behavior == "Isolated":
            return self._isolated.split(text)
        spans = [(start, end, match is not self.invert) for start, end, match in self._spans(text)]
        if self.behavior == "Removed":
            return [text[start:end] for start, end, match in spans if not match and end > start]
        return [text[start:end] for start, end in self._joined(spans) if end > start]

    def _spans(self, text: str) -> Iterator[tuple[int, int, bool]]:
        """Yield (start, end, whether it is a match) of all parts of `text` in order."""
        done = 0
        for match in self.compiled.finditer(text):
            start, end = match.span()
            if done < start:
                yield done, start, False
            yield start, end, True
            done = end
        if done < len(text):
            yield done, len(text), False

    def _joined(self, spans: list[tuple[int, int, bool]]) -> list[tuple[int, int]]:
        """Join neighbours: all of a kind, or each match with what stands before or behind it."""
        backwards = self.behavior == "MergedWithNext"
        joined: list[tuple[int, int]] = []
        before = False
        for start, end, match in reversed(spans) if backwards else spans:
            together = match is before if self.behavior == "Contiguous" else match and not before
            before = match
            if not together or not joined:
                joined.append((start, end))
            elif backwards:
                joined[-1] = (start, joined[-1][1])
            else:
                joined[-1] = (joined[-1][0], end)
        return joined[::-1] if backwards else joined


@dataclass(frozen=True)
class PrefixSpace:
    """Puts a space before each piece that has none, as ByteLevel's `add_prefix_space`."""

    def split(self, text: str) -> list[str]:
        """Return the one piece."""
        return [text if text.startswith(" ") else " " + text]


@dataclass(frozen=True)
class Metaspace:
    """Writes the replacement for spaces, perhaps one more at the start, and cuts before each."""

    replacement: str
    prepend_scheme: PrependScheme
    cut: bool

    def split(self, text: str) -> list[str]:
        """Return the pieces of a text that does not stand at the very start."""
        return self.split_at(text, at_start=False)

    def split_at(self, text: str, *, at_start: bool) -> list[str]:
        """Return the pieces; `at_start` matters to the scheme "first"."""
        mark = self.replacement
        text = text.replace(" ", mark)
        prepends = self.prepend_scheme == "always" or (at_start and self.prepend_scheme == "first")
        if prepends and not text.startswith(mark):
            text = mark + text
        if not self.cut:
            return [text]
        first, *others = text.split(mark)
        return [*([first] if first else []), *(mark + other for other in others)]

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {
            "type": "Metaspace",
            "replacement": self.replacement,
            "prepend_scheme": self.prepend_scheme,
            "split": self.cut,
        }


Step = Cut | PrefixSpace | Metaspace


@dataclass(frozen=True)
class SpaceBorder:
    """Cuts before a space marker where no merge crosses: shorter words, the same ids.

    Files in the way of SentencePiece leave the text whole. A merge can only cross a border if some
    merge of the file has a left part that ends, and a right part that begins, with the characters
    there. Markers that follow each other stay together.
    """

    marker: str
    joined: str
    """The characters, sorted, that some merge joins to a marker behind them."""

    @cached_property
    def expression(self) -> str:
        """What matches one word at a time and leaves nothing out."""
        mark = regex.escape(self.marker)
        crossed = "".join(map(regex.escape, sorted({*self.joined, self.marker})))
        return f"(?s:.)[^{mark}]*(?:(?<=[{crossed}]){mark}[^{mark}]*)*"

    @cached_property
    def compiled(self) -> "regex.Pattern[str]":
        """The compiled expression."""
        return compiled(self.expression)

    def split(self, text: str) -> list[str]:
        """Return the pieces of `text`."""
        return self.compiled.findall(text)


@final
class PreTokenizer:
    """All steps of a file in a row, and the border of our own behind them."""

    def __init__(
        self, steps: tuple[Step, ...] = (), *, byte_level: bool, border: SpaceBorder | None = None
    ) -> None:
        """Take the steps in order. `byte_level` says that ByteLevel stands at the end of them."""
        self.steps = steps
        self.byte_level = byte_level
        self.border = border
        self._active = [*steps, *([] if border is None else [border])]

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.steps, self.byte_level, self.border)

    @property
    def expressions(self) -> tuple[str, ...] | None:
        """The expressions by whose matches text is cut one after the other, if that is all.

        None if something else happens as well. What an expression leaves out becomes words too.
        """
        cuts = [
            step.expression
            for step in self._active
            if isinstance(step, SpaceBorder)
            or (isinstance(step, Cut) and step.behavior == "Isolated")
        ]
        return tuple(cuts) if len(cuts) == len(self._active) else None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The expressions of all Splits, in order."""
        return tuple(
            step.expression
            for step in self.steps
            if isinstance(step, Cut) and step.json.get("type") == "Split"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The types of the steps, as the file calls them."""
        parts = to_json(self)
        steps = parts.get("pretokenizers", [parts]) if parts else []
        return tuple(step["type"] for step in steps)

    def split(self, text: str, *, at_start: bool = True) -> list[str]:
        """Return the words of `text` in order, none empty.

        `at_start`: nothing stands before `text`, not even an added token.
        """
        words = [text] if text else []
        for n, step in enumerate(self._active):
            if n == 0 and words and isinstance(step, Metaspace):
                words = step.split_at(text, at_start=at_start)
            elif len(words) == 1:
                words = step.split(words[0])
            else:
                words = [piece for word in words for piece in step.split(word)]
        return words


def _rebuild(steps: tuple[Step, ...], byte_level: bool, border: SpaceBorder | None) -> PreTokenizer:
    return PreTokenizer(steps, byte_level=byte_level, border=border)


def split_cut(pattern: Pattern, behavior: Behavior, invert: bool) -> Cut:
    """Return the step of a Split."""
    json = {
        "type": "Split",
        "pattern": pattern.to_json(),
        "behavior": behavior,
        "invert": invert,
    }
    return Cut(pattern.expression, behavior, invert, json)


def byte_level(pattern: str) -> PreTokenizer:
    """Return what a byte-level tokenizer trained here does: cut by one expression."""
    cut = split_cut(Pattern("Regex", pattern), "Isolated", False)
    return PreTokenizer((cut,), byte_level=True)


def gpt2_cut() -> Cut:
    """Return the cut that ByteLevel makes by itself, written as a Split."""
    return split_cut(Pattern("Regex", PATTERNS["gpt2"]), "Isolated", False)


def to_json(pre_tokenizer: PreTokenizer) -> dict[str, Any] | None:
    """Return the pre-tokenizer in the form of the file, without the border of our own."""
    steps: list[dict[str, Any]] = []
    prefix = False
    for step in pre_tokenizer.steps:
        if isinstance(step, PrefixSpace):
            prefix = True
        else:
            steps.append(step.to_json() if isinstance(step, Metaspace) else dict(step.json))
    if pre_tokenizer.byte_level:
        use_regex = prefix and isinstance(pre_tokenizer.steps[-1], Cut)
        if use_regex:
            steps.pop()
        steps.append(
            {
                "type": "ByteLevel",
                "add_prefix_space": prefix,
                "trim_offsets": True,
                "use_regex": use_regex,
            }
        )
        return {"type": "Sequence", "pretokenizers": steps}
    if len(steps) > 1:
        return {"type": "Sequence", "pretokenizers": steps}
    return steps[0] if steps else None
