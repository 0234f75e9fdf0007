r"""Regular expressions -> the rules by which the split kernel finds the same words, if it can.

All patterns here are one family. They differ in a few choices, which are the flags; a possessive
quantifier (`++`) is only a hint for a regular-expression engine and changes no match in them.

Whether a word begins at a character follows from its class, those of the two characters before it
and that of the next one, so a rule becomes a table of 8**4 answers (`border_table`). The few cases
that look further are marked there, and the kernel looks.
"""

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from mlxgpt.text.bpe.splitting import PATTERNS
from mlxgpt.text.compiled.char_classes import (
    APOSTROPHE,
    BLANK,
    EDGE,
    LETTER,
    LINE_END,
    NUMBER,
    OTHER,
    SPACE,
)

ANY_CASE = 1
"""Contractions in any case: `'s` and `'S`."""
ANY_PREFIX = 2
"""Any one character may lead letters, and nothing leads digits. Without it a space leads either."""
LINE_ENDS = 4
"""Line ends stick to the punctuation or to the white space before them."""
WHOLE_TAIL = 8
"""White space at the end of the text is one word."""
DIGITS_APART = 16
"""The text was cut around each digit before: white space ends there as at the end of the text."""

UNLIMITED = 0
"""Digits of a word that may have any number of them."""

# Answers of a border table: a word begins here; or ask: is there a contraction, has the number
# enough digits, was the line end before not the last one of its white space?
BORDER, CONTRACTION, DIGITS, LINE = 1, 2, 4, 8


class SplitRule(NamedTuple):
    """What the kernel must know of a pattern."""

    flags: int
    most_digits: int
    """Of one word: `UNLIMITED`, 1, or any other number that is 3 or more."""


_GPT2 = SplitRule(0, UNLIMITED)
_LLAMA3 = SplitRule(ANY_CASE | ANY_PREFIX | LINE_ENDS, 3)
_QWEN2 = SplitRule(ANY_CASE | ANY_PREFIX | LINE_ENDS, 1)
_CL100K = SplitRule(ANY_CASE | ANY_PREFIX | LINE_ENDS | WHOLE_TAIL, 3)
_STARCODER = SplitRule(DIGITS_APART, 1)

_GPT2_FORMS = (
    PATTERNS["gpt2"],
    # tiktoken's r50k_base, before and after it got possessive quantifiers.
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
)
_CL100K_FORMS = (
    # tiktoken's cl100k_base over time; the first two have no `\s++$` and are Llama 3's.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
)

_RULES: dict[tuple[str, ...], SplitRule] = {
    **{(form,): _GPT2 for form in _GPT2_FORMS},
    **{(r"\p{N}", form): _STARCODER for form in _GPT2_FORMS},
    (PATTERNS["llama3"],): _LLAMA3,
    (_CL100K_FORMS[0],): _LLAMA3,
    (_CL100K_FORMS[1],): _LLAMA3,
    (_CL100K_FORMS[2],): _CL100K,
    (PATTERNS["qwen2"],): _QWEN2,
}


def rule_for(expressions: Sequence[str]) -> SplitRule | None:
    """Return the rule that gives the words of `Splitter(expressions)`, or None if there is none."""
    return _RULES.get(tuple(expressions))


def known_expressions() -> list[tuple[str, ...]]:
    """Return all that `rule_for` knows."""
    return list(_RULES)


@cache
def border_table(rule: SplitRule) -> np.ndarray:
    """Return what a rule says of four classes, uint8 (4096,).

    The index is `second_before << 9 | before << 6 | here << 3 | next`.
    """
    kinds = product(range(8), repeat=4)
    return np.array([_border(rule, *four) for four in kinds], np.uint8)


def _border(rule: SplitRule, second: int, before: int, here: int, following: int) -> int:
    """Return whether a word begins at a character of class `here`, or what to look for."""
    any_prefix, line_ends = rule.flags & ANY_PREFIX, rule.flags & LINE_ENDS
    apart = rule.flags & DIGITS_APART
    signs, blanks = (OTHER, APOSTROPHE), (BLANK, SPACE)
    if here == EDGE:
        return 0
    if before == EDGE:
        return BORDER
    # A sign in the middle of a run, or behind a space, was taken by what is before it.
    sign_begins_word = before in signs and second not in (*signs, BLANK)
    if here == LETTER:
        if before == APOSTROPHE and sign_begins_word:
            return CONTRACTION if any_prefix else BORDER | CONTRACTION
        if any_prefix and (before in blanks or sign_begins_word):
            return 0
        return BORDER * (before not in (LETTER, BLANK))
    if here == NUMBER:
        if before == NUMBER:
            if rule.most_digits == 1:
                return BORDER
            return DIGITS * (second == NUMBER and rule.most_digits != UNLIMITED)
        return BORDER * (before != BLANK or bool(any_prefix or apart))
    if here in signs:
        return BORDER * (before not in (*signs, BLANK))
    if here == LINE_END and line_ends:
        if before in blanks:
            return LINE
        return BORDER * (before in (LETTER, NUMBER))
    if before not in (*blanks, LINE_END):
        return BORDER
    if line_ends and before == LINE_END:
        return BORDER  # taken back if there is another line end in this white space
    ends_run = following in (LETTER, *signs) or (following == NUMBER and not apart)
    return BORDER * ends_run
