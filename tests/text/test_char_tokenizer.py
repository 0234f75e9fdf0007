"""The character tokenizer: one id per known character, bytes for the rest, never confused."""

import pytest

from mlxgpt.errors import TokenizerError
from mlxgpt.text import END_OF_TEXT, train_char


def test_ids_are_sorted_characters_then_bytes_then_specials() -> None:
    tokenizer = train_char(["b a\n", "é"], special_tokens=[END_OF_TEXT, "<|pad|>"])
    assert tokenizer.encode("\n abé") == [0, 1, 2, 3, 4]
    assert tokenizer.vocab_size == 5 + 256 + 2
    assert tokenizer.decode_bytes([5]) == b"\x00"
    assert tokenizer.special_tokens == {END_OF_TEXT: 261, "<|pad|>": 262}
    assert tokenizer.kind == "char"


def test_an_unknown_character_becomes_its_bytes() -> None:
    tokenizer = train_char(["ab"])
    assert tokenizer.encode("aéb") == [0, 2 + 0xC3, 2 + 0xA9, 1]
    assert tokenizer.decode(tokenizer.encode("aéb")) == "aéb"


def test_text_that_looks_like_a_byte_token_stays_text() -> None:
    tokenizer = train_char(["<0x0A>"])
    ids = tokenizer.encode("<0x0A>")
    assert len(ids) == 6
    assert tokenizer.decode(ids) == "<0x0A>"
    strange = train_char(["ab"])
    assert strange.decode(strange.encode("<0x0A>")) == "<0x0A>"


def test_literals_of_specials_add_no_characters() -> None:
    assert train_char([f"a{END_OF_TEXT}b"]).vocab_size == 2 + 256 + 1


def test_no_documents_give_the_bytes_alone() -> None:
    tokenizer = train_char([])
    assert tokenizer.vocab_size == 257
    assert tokenizer.decode(tokenizer.encode("日本")) == "日本"


@pytest.mark.parametrize("special", ["a", "日", "<0x0A>", "", "\udc4d"])
def test_specials_that_cannot_be_told_apart_are_refused(special: str) -> None:
    with pytest.raises(TokenizerError, match="special token"):
        train_char(["abc"], special_tokens=[special])
