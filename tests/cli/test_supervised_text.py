"""Ids and what is learned of them as lines: every sign seen, nothing raw, and all in its width."""

import re
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from mlxgpt.cli.data.supervised_text import Stretch, SupervisedText, stretches
from mlxgpt.text import END_OF_TEXT, train_bpe

END = "<|im_end|>"


def shown(*parts: Stretch, width: int = 80, colour: bool = False) -> list[str]:
    text = SupervisedText([END], colour=colour, width=width)
    return [line.plain for line in text.lines(parts)]


def given_(text: str) -> Stretch:
    return Stretch(text.encode(), False)


def learned(text: str) -> Stretch:
    return Stretch(text.encode(), True)


def test_what_is_learned_stands_between_marks_anew_in_each_line() -> None:
    parts = [given_("ask\nuser: "), learned("one\ntwo"), Stretch(END.encode(), True, True)]
    assert shown(*parts, given_("\n")) == ["ask\\n", "user: ⟦one\\n⟧", f"⟦two{END}⟧\\n"]


def test_a_text_that_looks_like_a_control_token_has_a_backslash() -> None:
    parts = [given_(f"a{END}b"), Stretch(END.encode(), False, True)]
    assert shown(*parts) == [f"a\\{END}b{END}"]
    assert shown(*parts, colour=True) == [f"a\\{END}b{END}"]


def test_marks_and_backslashes_of_the_text_are_told_from_ours() -> None:
    assert shown(learned("a⟦b⟧\\n")) == ["⟦a\\⟦b\\⟧\\\\n⟧"]
    assert shown(learned("a⟦b⟧"), colour=True) == ["a⟦b⟧"]


def test_nothing_that_steers_a_terminal_is_left() -> None:
    text = "\x1b[31mred\x07\x9b2J\u202e\r\x7f\u2028é"
    [line] = shown(given_(text), Stretch(b"\x1b\xff", True))
    assert line == "\\u001b[31mred\\u0007\\u009b2J\\u202e\\r\\u007f\\u2028é⟦\\u001b\\xff⟧"
    assert line.isprintable()


def test_lines_end_at_spaces_if_there_are_any() -> None:
    assert shown(learned("one two three four"), width=12) == ["⟦one two ⟧", "⟦three four⟧"]
    assert shown(given_("x" * 25), width=12) == ["x" * 12, "x" * 12, "x"]


def test_ids_side_by_side_share_their_marks() -> None:
    text = SupervisedText([], colour=False, width=12)
    lines = text.numbers([1, 22, 333, 4, 55555], [False, True, True, False, True])
    assert [line.plain for line in lines] == ["1 ⟦22 333⟧", "4 ⟦55555⟧"]
    text = SupervisedText([], colour=True, width=80)
    assert text.numbers([1, 22], [False, True])[0].plain == "1 22"
    assert text.numbers([], []) == []


def test_an_encoding_without_the_marks_has_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(encoding="ascii"))
    assert shown(given_("[é] "), learned("b")) == ["\\[\\u00e9\\] [b]"]


LETTERS = st.text(st.sampled_from("ab \n\\⟦⟧\x1b\u0301漢<|im_end|>"), max_size=40)
PARTS = st.lists(st.tuples(LETTERS, st.booleans(), st.booleans()), max_size=6)


@given(PARTS, st.integers(12, 30), st.booleans())
def test_every_line_fits_and_nothing_is_lost(
    parts: list[tuple[str, bool, bool]], width: int, colour: bool
) -> None:
    made = [
        Stretch(END.encode(), learned, True) if special else Stretch(text.encode(), learned)
        for text, learned, special in parts
    ]
    lines = shown(*made, width=width, colour=colour)
    assert all(cell_len(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)
    joined = "".join(lines)
    if not colour:
        joined = re.sub(r"\\.|[⟦⟧]", lambda m: m[0] if m[0][0] == "\\" else "", joined)
    assert _unspelled(joined) == "".join(part.data.decode() for part in made)
    flags = [flag for line in lines for flag in _flags(line)]
    if not colour and not any(special for _, _, special in parts):
        assert flags == [part.is_learned for part in made for _ in part.data.decode()]


def _unspelled(text: str) -> str:
    named = {"n": "\n", "\\": "\\"}
    return re.sub(
        r"\\(?:u([0-9a-f]{4})|(.))",
        lambda m: chr(int(m[1], 16)) if m[1] else named.get(m[2], m[2]),
        text,
    )


def _flags(line: str) -> list[bool]:
    """Return, for each sign of a line, whether it stands between marks."""
    flags, inside = [], False
    for sign in re.findall(r"\\u[0-9a-f]{4}|\\.|.", line):
        if sign in "⟦⟧":
            inside = sign == "⟦"
        else:
            flags.append(inside)
    return flags


def test_ids_are_cut_where_they_begin_to_be_learned() -> None:
    tokenizer = train_bpe(["é"], 258, special_tokens=[END_OF_TEXT, END])
    ids = [*tokenizer.encode("aé"), *tokenizer.encode(END, "all"), *tokenizer.encode("bc")]
    assert stretches(tokenizer, ids, [False, True, True, True, True, False]) == [
        Stretch(b"a", False),
        Stretch("é".encode(), True),
        Stretch(END.encode(), True, True),
        Stretch(b"b", True),
        Stretch(b"c", False),
    ]
    assert stretches(tokenizer, [], []) == []
