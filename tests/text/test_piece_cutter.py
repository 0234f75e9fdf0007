"""Documents in pieces: wherever they are cut, their words are those of the whole document."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlxgpt.text.added_tokens import AddedToken, AddedTokens
from mlxgpt.text.bpe.piece_cutter import PieceCutter
from mlxgpt.text.bpe.splitting import PATTERNS, Splitter
from mlxgpt.text.bpe.word_counts import ordinary_stretches
from mlxgpt.text.surrogates import repair_surrogates, repaired

SPECIALS = ["<|eot|>", "a b", "b. a", " ", "9"]
# Contractions in odd cases, marks, digits that are no decimals, white space of all kinds, halves of
# surrogate pairs, special literals and parts of them.
BITS = [
    "'",
    "s",
    "S",
    "ſ",
    "re",
    "'LL",
    "a",
    "b",
    "Z",
    "é",
    "e\u0301",
    "中",
    "न",
    "्",
    "א",
    "²",
    "½",
]
BITS += ["Ⅷ", "9", "12", "٣", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1c"]
BITS += ["!", ".", "...", "。", "_", "\0", "😀", "𐐀", "\ud801", "\udc00", "\ud83d", *SPECIALS]
TEXTS = st.lists(st.sampled_from(BITS), max_size=40).map("".join)


def added(names: list[str]) -> AddedTokens:
    return AddedTokens(AddedToken(id=i, content=name) for i, name in enumerate(names))


def in_parts(text: str, sizes: list[int]) -> Iterator[str]:
    """Cut a text into parts of these sizes, over and over."""
    at = k = 0
    while at < len(text):
        size = sizes[k % len(sizes)]
        yield text[at : at + size]
        at, k = at + size, k + 1


@given(
    TEXTS,
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.integers(1, 12),
    st.sampled_from([*PATTERNS, r"\w+ |\d", None]),
    st.lists(st.sampled_from(SPECIALS), unique=True),
)
# Each catches a rule that looks right: to cut behind a line end; before a literal is whole; with
# too little of the text before in sight.
@example("  \n\r\ns", [1], 1, "gpt2", [])
@example("a b", [1], 1, "gpt2", ["a b"])
@example("<|eot|>'''121212", [1], 1, "gpt2", ["<|eot|>"])
def test_the_words_of_the_pieces_are_the_words_of_the_whole(
    text: str, sizes: list[int], piece: int, pattern: str | None, specials: list[str]
) -> None:
    expression = None if pattern is None else PATTERNS.get(pattern, pattern)
    splitter = Splitter(["(?s)." if expression is None else expression])
    tokens, wanted = added(specials), frozenset(specials)

    def cut(texts: list[str]) -> list[object]:
        """The words and the special tokens of some texts, each text by itself."""
        parts = [part for text in texts for part in tokens.cut(text, wanted)]
        words = [splitter.split(p) if isinstance(p, str) else [p] for p in parts]
        return [word for several in words for word in several]

    pieces = list(PieceCutter(expression, specials).cut(repaired(in_parts(text, sizes)), piece))
    assert "".join(pieces) == repair_surrogates(text)
    assert cut(pieces) == cut([repair_surrogates(text)])


@given(TEXTS, st.lists(st.integers(1, 3), min_size=1, max_size=5))
def test_surrogates_are_repaired_across_parts(text: str, sizes: list[int]) -> None:
    assert "".join(repaired(in_parts(text, sizes))) == repair_surrogates(text)


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), None])
@pytest.mark.parametrize("unit", ["some text, ", "文字。", "def f(x):\n\treturn 1\n", "é1!"])
def test_little_is_held_of_an_endless_document(pattern: str | None, unit: str) -> None:
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield unit

    pieces = PieceCutter(pattern, ["<|eot|>"]).cut(endless(), 200)
    for number in range(1, 50):
        assert 150 < len(next(pieces)) < 250
        assert taken * len(unit) < number * 200 + 250


def test_a_document_is_held_whole_where_nothing_is_certain() -> None:
    parts = ["one two ", "three"] * 9
    assert list(PieceCutter(r"\w+ three|\w+", []).cut(parts, 4)) == ["".join(parts)]
    assert len(list(PieceCutter(PATTERNS["gpt2"], []).cut(parts, 4))) == 10


@pytest.mark.timeout(60)
def test_one_endless_word_is_no_obstacle() -> None:
    parts = ["x" * 100] * 50_000
    [piece] = PieceCutter(PATTERNS["gpt2"], ["<|eot|>"]).cut(parts, 100)
    assert piece == "x" * 5_000_000


def test_a_text_and_its_pieces_are_the_same_document() -> None:
    text = "a b<|eot|>" * 300_000
    cutter = PieceCutter(PATTERNS["qwen2"], ["<|eot|>"])
    tokens = added(["<|eot|>"])
    whole = list(ordinary_stretches([text], cutter, tokens))
    parts = list(ordinary_stretches([in_parts(text, [65_537])], cutter, tokens))
    assert whole == parts == ["a b"] * 300_000
