"""The String or Regex of a tokenizer.json -> matches in a text, the same as in the library.

The library uses the Oniguruma engine, we the `regex` module. Most of what tokenizers write means
the same to both. A pattern is walked through sign by sign; what differs is translated where that
is exact (Oniguruma counts ² ³ ¹ ¼ ½ ¾ as word characters) and is otherwise left to the library:
nothing is passed on in the hope that the other engine reads it alike.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import regex

from mlxgpt.text.pipeline.unsupported import Unsupported

PatternKind = Literal["String", "Regex"]

# Compared with Oniguruma on every code point; U+0295 alone is Ll for one and Lo for the other.
_CATEGORIES = "L N P S Z M Lu Ll Lt Lm Lo Nd Nl No Mn Mc Me Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs"
_SCRIPTS = "Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Thai Hangul Devanagari"
_LONG = "Letter Number Punctuation Symbol Alphabetic"
_PROPERTIES = frozenset(f"{_CATEGORIES} {_SCRIPTS} {_LONG}".split())

_PROPERTY = re.compile(r"\{(\^?)([A-Za-z]+)\}")
_REPEAT = re.compile(r"\{(\d{0,4})(?:(,)(\d{0,4}))?\}")
_GROUPS = ("(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>")
_ANY_CASE = re.compile(r"\(\?i:(['’a-zA-Z|\[\]?]+)\)")
_FOLDED_TOGETHER = re.compile(r"ff|fi|fl|ss|st|\[\^|\[\]|\]\]|\[[^\]]*\[", re.IGNORECASE)
"""Pairs that are one character in another case (ß, ﬁ) for Oniguruma, and unusual classes."""
_MORE_WORD = "²³¹¼½¾"


@dataclass(frozen=True)
class Pattern:
    """What a Split or a Replace looks for."""

    kind: PatternKind
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {self.kind: self.text}

    @cached_property
    def expression(self) -> str:
        """The same for the `regex` module. Raises `Unsupported` where nothing there is the same."""
        if not self.text:
            raise Unsupported("an empty pattern")
        return regex.escape(self.text) if self.kind == "String" else translated(self.text)

    @cached_property
    def compiled(self) -> "regex.Pattern[str]":
        """The compiled expression; raises as `expression`."""
        return compiled(self.expression)


def compiled(expression: str) -> "regex.Pattern[str]":
    """Compile an expression for the `regex` module, or raise `Unsupported`."""
    try:
        return regex.compile(expression)
    except regex.error as e:
        raise Unsupported(f"the pattern {expression!r}") from e


def translated(expression: str) -> str:
    """Return `expression`, written for Oniguruma, for the `regex` module; it captures nothing.

    Raises `Unsupported` naming what the two would read differently.
    """
    out: list[str] = []
    at = 0
    while at < len(expression):
        at = _translate_one(expression, at, out)
    return "".join(out)


def _translate_one(expression: str, at: int, out: list[str]) -> int:
    """Append one element of the expression to `out`; return where the next one begins."""
    sign = expression[at]
    if sign == "\\":
        return _escape(expression, at, out, in_class=False)
    if sign == "[":
        return _character_class(expression, at, out)
    if sign == "(":
        return _group(expression, at, out)
    if sign in "*+?":
        out.append(sign)
        return _after_repeat(expression, at + 1, out, "?+")
    if sign == "{":
        repeat = _REPEAT.match(expression, at)
        if repeat is None or not (repeat[1] or repeat[3]):
            raise _differs(expression, "{")
        if repeat[1] and repeat[3] and int(repeat[1]) > int(repeat[3]):
            raise _differs(expression, repeat.group())
        out.append(repeat.group())
        # Oniguruma reads {1,3}+ as a repeat of the repeat, `regex` as a possessive one.
        return _after_repeat(expression, repeat.end(), out, "")
    if sign in "^$":
        raise _differs(expression, sign)
    out.append(f"\\{sign}" if sign in "]}" else sign)
    return at + 1


def _after_repeat(expression: str, at: int, out: list[str], suffixes: str) -> int:
    if expression[at : at + 1] in tuple(suffixes):
        out.append(expression[at])
        at += 1
    if expression[at : at + 1] in tuple("*+?{"):
        raise _differs(expression, "a repeat of a repeat")
    return at


def _group(expression: str, at: int, out: list[str]) -> int:
    any_case = _ANY_CASE.match(expression, at)
    if any_case is not None and not _FOLDED_TOGETHER.search(any_case[1]):
        out.append(any_case.group())
        return any_case.end()
    if expression[at + 1 : at + 2] != "?":
        out.append("(?:")
        return at + 1
    for opening in _GROUPS:
        if expression.startswith(opening, at):
            out.append(opening)
            return at + len(opening)
    raise _differs(expression, expression[at : at + 4])


def _escape(expression: str, at: int, out: list[str], *, in_class: bool) -> int:
    sign = expression[at + 1 : at + 2]
    if sign and sign in "sSdDrntf":
        out.append("\\" + sign)
        return at + 2
    if sign == "w":
        out.append(rf"\w{_MORE_WORD}" if in_class else rf"[\w{_MORE_WORD}]")
        return at + 2
    if sign == "W" and not in_class:
        out.append(rf"[^\w{_MORE_WORD}]")
        return at + 2
    if sign and sign in "pP":
        name = _PROPERTY.match(expression, at + 2)
        if name is not None and name[2] in _PROPERTIES:
            out.append(f"\\{sign}{name.group()}")
            return name.end()
    if sign == "u":
        digits = expression[at + 2 : at + 6]
        if re.fullmatch("[0-9a-fA-F]{4}", digits) and not 0xD800 <= int(digits, 16) <= 0xDFFF:
            out.append(regex.escape(chr(int(digits, 16))))
            return at + 6
    if sign and (sign.isascii() and not sign.isalnum()):
        out.append("\\" + sign)
        return at + 2
    raise _differs(expression, "\\" + sign)


def _character_class(expression: str, at: int, out: list[str]) -> int:
    out.append("[")
    at += 1
    if expression.startswith("^", at):
        out.append("^")
        at += 1
    first = at
    while (sign := expression[at : at + 1]) != "]" or at == first:
        if not sign or sign in "[]" or expression[at : at + 2] in ("&&", "--"):
            raise _differs(expression, "an unusual class [...]")
        if sign == "\\":
            at = _escape(expression, at, out, in_class=True)
        else:
            # Doubled signs are set operations to `regex`.
            doubled = sign in "&|~" and expression[at + 1 : at + 2] == sign
            out.append(f"\\{sign}" if doubled else sign)
            at += 1
    out.append("]")
    return at + 1


def _differs(expression: str, what: str) -> Unsupported:
    return Unsupported(f"the pattern {expression!r} with {what}")
