"""Special tokens act only where the caller allows it; from outside they are ordinary text."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import TokenizerError
from mlxgpt.text import END_OF_TEXT, Tokenizer, train_bpe, train_char
from mlxgpt.text.added_tokens import AddedToken, AddedTokens

SPECIALS = [END_OF_TEXT, "<|eot|>", "<|eot|>x"]
TEXTS = ["hug hug pug bun", "a<b>|c"]
CHAR = train_char(TEXTS, special_tokens=SPECIALS)


@pytest.fixture(scope="module", params=["bpe", "char"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    if request.param == "char":
        return CHAR
    return train_bpe(TEXTS, 300, special_tokens=SPECIALS)


def test_a_literal_in_untrusted_text_is_ordinary_text(tokenizer: Tokenizer) -> None:
    text = f"a user writes {END_OF_TEXT} and <|eot|>"
    ids = tokenizer.encode(text)
    assert not set(ids) & set(tokenizer.special_tokens.values())
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special=True) == text


def test_allowed_specials_become_their_ids(tokenizer: Tokenizer) -> None:
    eot, end = tokenizer.special_tokens["<|eot|>"], tokenizer.special_tokens[END_OF_TEXT]
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    assert tokenizer.encode("a<|eot|>b", allowed_special="all") == [*a, eot, *b]
    assert tokenizer.encode("a<|eot|>b", allowed_special=["<|eot|>"]) == [*a, eot, *b]
    only_end = tokenizer.encode(f"<|eot|>{END_OF_TEXT}", allowed_special={END_OF_TEXT})
    assert only_end == [*tokenizer.encode("<|eot|>"), end]
    assert tokenizer.encode(END_OF_TEXT * 2, allowed_special="all") == [end, end]
    assert tokenizer.encode("", allowed_special="all") == []


def test_of_two_specials_at_one_place_the_longer_is_meant(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|eot|>x<|eot|>y", allowed_special="all")
    assert ids[0] == tokenizer.special_tokens["<|eot|>x"]
    assert ids[1] == tokenizer.special_tokens["<|eot|>"]


def test_decoding_gives_the_literal_or_skips_it(tokenizer: Tokenizer) -> None:
    eot = tokenizer.special_tokens["<|eot|>"]
    ids = tokenizer.encode("a<|eot|>b", allowed_special="all")
    assert tokenizer.decode(ids) == "a<|eot|>b"
    assert tokenizer.decode([eot]) == "<|eot|>"
    assert tokenizer.decode(ids, skip_special=True) == "ab"
    assert tokenizer.token_byte_lengths[eot] == 0


def test_names_that_are_no_specials_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match=r"'<\|eos\|>' is not a special .*did you mean"):
        tokenizer.encode("a", allowed_special=["<|eos|>"])
    with pytest.raises(TokenizerError, match=r"got the text '<\|eot\|>'"):
        tokenizer.encode("a", allowed_special="<|eot|>")
    with pytest.raises(TokenizerError, match="not a special token"):
        train_char(["a"], special_tokens=[]).encode("a", allowed_special=["<x>"])


def test_the_table_of_specials_cannot_be_changed_from_outside(tokenizer: Tokenizer) -> None:
    tokenizer.special_tokens["<|new|>"] = 7
    assert "<|new|>" not in tokenizer.special_tokens
    with pytest.raises(ValueError, match="read-only"):
        tokenizer.token_byte_lengths[0] = 9


@given(st.lists(st.sampled_from([*SPECIALS, "a", "<|eo", "t|>", " ", "\n", "é"]), max_size=9))
def test_text_with_allowed_specials_comes_back(pieces: list[str]) -> None:
    text = "".join(pieces)
    ids = CHAR.encode(text, allowed_special="all")
    assert CHAR.decode(ids) == text
    assert CHAR.decode(CHAR.encode(text)) == text


def cut(text: str, *tokens: AddedToken) -> list[str | int]:
    added = AddedTokens(tokens)
    pieces = added.cut(text, added.wanted("all"))
    return [piece if isinstance(piece, str) else piece.id for piece in pieces]


def test_flags_of_added_tokens_are_honoured() -> None:
    assert cut("a  <s> b", AddedToken(id=1, content="<s>", lstrip=True)) == ["a", 1, " b"]
    assert cut("a <s> \n b", AddedToken(id=1, content="<s>", rstrip=True)) == ["a ", 1, "b"]
    word = AddedToken(id=1, content="it", single_word=True)
    assert cut("it bit it, its (it)", word) == [1, " bit ", 1, ", its (", 1, ")"]
    first = AddedToken(id=1, content="bc")
    later = AddedToken(id=2, content="ab", normalized=True)
    assert cut("abc", first, later) == ["a", 1], "tokens that are not normalized come first"
    assert cut("ab <s>", AddedToken(id=1, content="<s>", lstrip=True), later) == [2, 1]


def test_words_and_spaces_around_added_tokens_are_those_of_unicode() -> None:
    word = AddedToken(id=1, content="it", single_word=True)
    assert cut("²it it½", word) == ["²", 1, " ", 1, "½"], "no number of a word"
    for of_a_word in ("\u0301it", "it\u200d", "_it", "ité", "٣it"):
        assert cut(of_a_word, word) == [of_a_word]
    both = AddedToken(id=1, content="<s>", lstrip=True, rstrip=True)
    assert cut("a\u3000\x85<s>\u2028 b", both) == ["a", 1, "b"]
    assert cut("a\x1c<s>\x1fb", both) == ["a\x1c", 1, "\x1fb"], "no white space in Unicode"
    assert cut(" <s>  <s> ", both) == [1, 1]


def test_many_added_tokens_take_no_more_than_the_length_of_the_text() -> None:
    many = AddedToken(id=1, content="<s>", lstrip=True, rstrip=True)

    def seconds(n: int) -> float:
        began = time.process_time()
        assert cut(("<s> x " * n).rstrip(), many) == [1, "x"] * n
        return time.process_time() - began

    assert seconds(80_000) < 10 * min(seconds(20_000) for _ in range(3)) + 0.05


@pytest.mark.parametrize("text", [None, 3, b"abc", ["abc"]])
def test_what_is_no_text_is_refused(text) -> None:
    tokenizer = train_bpe(["abc"], 257)
    for encode in (tokenizer.encode, tokenizer.encode_array):
        with pytest.raises(TokenizerError, match="a text must be a str"):
            encode(text)


@pytest.mark.timeout(60)
def test_a_long_run_of_white_space_is_looked_at_once() -> None:
    """Looked at anew for each of the tokens in it, it would take half an hour."""
    space = AddedToken(id=0, content="  ", special=False, rstrip=True)
    assert len(list(AddedTokens([space]).cut(" " * 100_000, frozenset(["  "])))) == 50_000
