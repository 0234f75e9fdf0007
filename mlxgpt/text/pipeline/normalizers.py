"""Text -> text as the model was trained on it: the normalizers of a tokenizer.json.

Unicode forms come from Python's own tables, which may know characters that the library's do not, or
the other way round; on what both know they agree.
"""

import unicodedata
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import regex

from mlxgpt.text.pipeline.patterns import Pattern

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]

_ACCENTS = regex.compile(r"\p{M}+")
_MANY_MARKS = regex.compile(r"\p{M}{32,}")
_LEFT_SPACE, _RIGHT_SPACE = regex.compile(r"\A\s+"), regex.compile(r"\s+\Z")


@dataclass(frozen=True)
class UnicodeForm:
    """One of the four normal forms of Unicode."""

    form: Form

    def apply(self, text: str) -> str:
        """Return the text in this form."""
        return unicodedata.normalize(self.form, _MANY_MARKS.sub(_in_order, text))

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": self.form}


def _in_order(marks: "regex.Match[str]") -> str:
    """Return marks in canonical order (UAX 15), which Python's sorting of many takes long for.

    Only marks between two of class 0 may change places.
    """
    groups = groupby(marks.group(), key=lambda mark: unicodedata.combining(mark) == 0)
    return "".join(
        "".join(group if fixed else sorted(group, key=unicodedata.combining))
        for fixed, group in groups
    )


@dataclass(frozen=True)
class Replace:
    """Puts `content` wherever the pattern matches."""

    pattern: Pattern
    content: str

    def apply(self, text: str) -> str:
        """Return the text with all matches replaced; `content` is taken literally."""
        if self.pattern.kind == "String":
            return text.replace(self.pattern.text, self.content)
        return self.pattern.compiled.sub(lambda _: self.content, text)

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Replace", "pattern": self.pattern.to_json(), "content": self.content}


@dataclass(frozen=True)
class Prepend:
    """Puts `prefix` before every stretch that is not empty."""

    prefix: str

    def apply(self, text: str) -> str:
        """Return the text with the prefix."""
        return self.prefix + text if text else text

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Prepend", "prepend": self.prefix}


@dataclass(frozen=True)
class Strip:
    """Takes white space away from the ends."""

    left: bool
    right: bool

    def apply(self, text: str) -> str:
        """Return the stripped text; white space is that of Unicode, not of `str.strip`."""
        if self.left:
            text = _LEFT_SPACE.sub("", text)
        return _RIGHT_SPACE.sub("", text) if self.right else text

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Strip", "strip_left": self.left, "strip_right": self.right}


@dataclass(frozen=True)
class Lowercase:
    """Takes the small form of each character by itself: the sigma at the end of a word is σ too."""

    def apply(self, text: str) -> str:
        """Return the text in small letters."""
        return text.lower() if "Σ" not in text else "".join(map(str.lower, text))

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Lowercase"}


@dataclass(frozen=True)
class StripAccents:
    """Drops combining marks; precomposed letters keep theirs unless a form took them apart."""

    def apply(self, text: str) -> str:
        """Return the text without marks."""
        return _ACCENTS.sub("", text)

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "StripAccents"}


Normalizer = UnicodeForm | Replace | Prepend | Strip | Lowercase | StripAccents


def normalize(normalizers: tuple[Normalizer, ...], text: str) -> str:
    """Return `text` after all normalizers, in their order."""
    for normalizer in normalizers:
        text = normalizer.apply(text)
    return text
