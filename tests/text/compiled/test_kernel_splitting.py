"""The split kernel against the plain splitter: the same words for every text and every pattern."""

from itertools import product

import numpy as np
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st
from kernel_models import PIECES, fuzzed

from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.compiled.char_classes import LETTER, LINE_END, NUMBER, OTHER, class_table
from mlxgpt.text.compiled.loads import PADDING, pad
from mlxgpt.text.compiled.split_rules import SplitRule, known_expressions, rule_for
from mlxgpt.text.compiled.splitter import ends_of_words, word_ends

PLAIN = {expressions: Splitter(expressions) for expressions in known_expressions()}
TEXTS = st.lists(
    st.one_of(st.sampled_from(PIECES), st.characters(exclude_categories=["Cs"])), max_size=30
).map("".join)


def cut(data: bytes, rule: SplitRule, room: int = 1 << 15) -> list[bytes]:
    ends = [end for piece in word_ends(pad(data), len(data), rule, room) for end in piece.tolist()]
    return [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def check(text: str, expressions: tuple[str, ...], room: int) -> None:
    rule = rule_for(expressions)
    assert rule is not None
    words = [word.encode() for word in PLAIN[expressions].split(text)]
    assert cut(text.encode(), rule, room) == words, (text, expressions)


@pytest.mark.parametrize("expressions", known_expressions())
def test_fuzzed_texts_have_the_words_of_the_plain_splitter(expressions: tuple[str, ...]) -> None:
    for i, text in enumerate(fuzzed(600, seed=len(expressions[0]))):
        check(text, expressions, room=(3, 40, 1 << 15)[i % 3])


@given(TEXTS, st.sampled_from(known_expressions()), st.integers(1, 30))
@example("don'ſt I'LL 'sfoo ''s ''lle 't's", (PATTERNS["llama3"],), 1)
@example("!\n \n\n  x\u3000\n\u00a0\n y \n ", (PATTERNS["llama3"],), 1)
@example("x \n", known_expressions()[-2], 9)
@example("12345678 ١٢٣٤ ½1²2 a1'2", (PATTERNS["llama3"],), 1)
@example("a  1  '1 \t1\n", known_expressions()[3], 1)
def test_any_text_has_the_words_of_the_plain_splitter(
    text: str, expressions: tuple[str, ...], room: int
) -> None:
    check(text, expressions, room)


@pytest.mark.parametrize("expressions", known_expressions())
def test_every_neighbourhood_of_characters(expressions: tuple[str, ...]) -> None:
    """A rule is a table over four classes: try all of them, and at the end of a text too."""
    kinds = ["a", "1", "'", "!", " ", "\t", "\n", "s"]
    check("字".join(map("".join, product(kinds, repeat=5))), expressions, 1 << 12)
    for four in product(kinds, repeat=4):
        check("".join(four), expressions, 1 << 12)


def test_the_classes_are_those_of_the_installed_regex_module() -> None:
    pages, classes = class_table()
    points = np.arange(0x110000)
    kinds = classes[pages[points >> 8].astype(np.int64) << 8 | points & 255]
    text = "".join(chr(c) for c in (*range(0xD800), *range(0xE000, 0x110000)))
    for kind, expression in ((LETTER, r"\p{L}"), (NUMBER, r"\p{N}"), (LINE_END, r"[\r\n]")):
        found = {ord(char) for char in regex.findall(expression, text)}
        assert found == set(np.flatnonzero(kinds == kind).tolist())
    space = {ord(char) for char in regex.findall(r"\s", text)}
    assert space == set(np.flatnonzero((kinds > 3) & (kinds < 7)).tolist())
    assert (kinds[0xD800:0xE000] == OTHER).all()


@pytest.mark.parametrize("expressions", known_expressions())
@pytest.mark.parametrize(
    "broken",
    [b"\xff" * 40, b"ab\xf8\x88", b"\xe4\xb8", b" \xc3", b"'\xc5", bytes(range(256)), b"1\xbf\xbf"],
)
def test_broken_utf8_is_cut_without_loss(broken: bytes, expressions: tuple[str, ...]) -> None:
    rule = rule_for(expressions)
    assert rule is not None
    for room in (1, 1 << 10):
        words = cut(broken, rule, room)
        assert b"".join(words) == broken
        assert all(words)


def test_what_stands_behind_a_text_has_no_influence() -> None:
    rule = SplitRule(*(rule_for([PATTERNS["gpt2"]]) or ()))
    for text in ("ab", "ab ", "'", "'l", "  "):
        data = text.encode()
        buffer = np.frombuffer(bytearray(data + b"ls" * PADDING), np.uint8).copy()
        ends = [e for piece in word_ends(buffer, len(data), rule, 100) for e in piece.tolist()]
        assert ends == ends_of_words(PLAIN[(PATTERNS["gpt2"],)].split(text), data).tolist()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=8))
def test_lists_of_words_have_ends_in_bytes(words: list[str]) -> None:
    data = "".join(words).encode()
    expected = np.cumsum([len(word.encode()) for word in words])
    assert ends_of_words(words, data).tolist() == expected.tolist()


def test_other_patterns_are_left_to_the_plain_splitter() -> None:
    assert rule_for([r"\w+"]) is None
    assert rule_for([]) is None
    assert rule_for([PATTERNS["gpt2"], PATTERNS["gpt2"]]) is None
