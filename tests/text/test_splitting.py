"""Words of the known patterns: the quick way finds what the `regex` module finds."""

import re

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text.bpe import quick_words
from mlxgpt.text.bpe.quick_words import QuickWords, ascii_twin
from mlxgpt.text.bpe.splitting import PATTERNS, Splitter

NAMES = st.sampled_from(list(PATTERNS))
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x85", "\x1c", "\x1f"]
SIGNS = [
    "'s",
    "'LL",
    "'ve",
    "'",
    "12",
    "3456",
    "word",
    "A",
    "!",
    "...",
    "_",
    "é",
    "日本",
    "ſ",
    "'ſ",
    "²",
    "½",
    "٣",
    "👍",
    "́",
]
PIECES = st.sampled_from([*SPACES, *SIGNS])
TEXTS = st.lists(st.one_of(PIECES, st.characters(codec="utf-8")), max_size=60).map("".join)


@given(NAMES, TEXTS, st.integers(0, 8))
def test_the_quick_way_finds_the_words_of_the_pattern(name, text, stretch) -> None:
    expected = regex.findall(PATTERNS[name], text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick_words, "_STRETCH", stretch)
        assert QuickWords(PATTERNS[name]).split(text) == expected
    assert Splitter([PATTERNS[name]]).split(text) == expected
    assert "".join(expected) == text


@given(NAMES, st.text(st.characters(max_codepoint=127), max_size=40))
def test_on_ascii_both_engines_find_the_same(name, text) -> None:
    expression = PATTERNS[name]
    assert re.findall(ascii_twin(expression), text, re.ASCII) == regex.findall(expression, text)


def test_every_known_pattern_has_a_twin_without_properties() -> None:
    for expression in PATTERNS.values():
        twin = ascii_twin(expression)
        assert "\\p" not in twin
        assert twin != expression


@pytest.mark.parametrize("name", PATTERNS)
def test_long_texts_are_cut_like_short_ones(name: str) -> None:
    line = "It's 1 “quoted” line, isn’t it?  Oui, déjà vu;\n\n   x = [1, 2222]  # yes \n"
    text = line * 50 + "plain ascii words, many of them. " * 200 + "é" * 3000 + " end"
    assert Splitter([PATTERNS[name]]).split(text) == regex.findall(PATTERNS[name], text)
