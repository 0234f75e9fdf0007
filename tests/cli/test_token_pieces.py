"""Tokens as a terminal shows them: whatever is shown can be read back to the bytes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from mlxgpt.cli.tokenizer.pieces import Ribbon, beside, spell

SIGN = re.compile(r"\\(?:x..|u.{4}|U.{8}|.)|.", re.DOTALL)
NAMED = {r"\n": b"\n", r"\r": b"\r", r"\t": b"\t"}

# Bytes of all kinds, and texts with what is hard to show: marks, joiners, wide and hidden signs.
odd_text = st.text(
    st.sampled_from("ab \n\\│|é日\u0301\u200d\u202e\u00a0👩\ufe0f\u1161"), min_size=1
)
tokens = st.lists(
    st.one_of(st.binary(min_size=1, max_size=6), odd_text.map(str.encode)), max_size=12
)


def meaning(sign: str) -> bytes:
    """Undo the spelling of one sign."""
    if sign in NAMED:
        return NAMED[sign]
    if sign.startswith(r"\x"):
        return bytes.fromhex(sign[2:])
    if re.match(r"\\[uU]", sign):
        return chr(int(sign[2:], 16)).encode()
    return sign[-1].encode()


def read_plain(lines: list[Text], border: str) -> list[bytes]:
    """Return the tokens between the borders of plain lines."""
    signs: list[str] = []
    for line in lines:
        new = SIGN.findall(line.plain)
        if signs[-1:] == [border] == new[:1]:
            new = new[1:]
        signs += new
    found: list[bytes] = []
    for sign in signs:
        if sign == border:
            found.append(b"")
        else:
            found[-1] += meaning(sign)
    assert not found or found.pop() == b"", "the last border has to close"
    return found


def read_coloured(lines: list[Text]) -> list[bytes]:
    """Return the tokens of coloured lines: a token ends where the background changes."""
    found: list[bytes] = []
    last = ""
    for line in lines:
        for start, end, style in line.spans:
            background = str(style).removesuffix(" bold")
            if background != last:
                found.append(b"")
            last = background
            found[-1] += b"".join(map(meaning, SIGN.findall(line.plain[start:end])))
    return found


@given(tokens, st.none() | st.integers(1, 60))
def test_the_tokens_can_be_read_back_from_plain_and_from_coloured_lines(
    given_tokens: list[bytes], width: int | None
) -> None:
    for colour in (False, True):
        ribbon = Ribbon(colour=colour, width=width)
        lines = ribbon.lines([ribbon.token(t) for t in given_tokens], indent=5)
        shown = read_coloured(lines) if colour else read_plain(lines, ribbon.border)
        assert shown == given_tokens
        assert len(lines) == 1 or width is not None
        if width is not None:
            assert all(cell_len(line.plain) <= max(12, width - 5) for line in lines)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (" the", " the"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\\n", r"\\n"),
        ("日本", "日本"),
        ("日".encode()[:2], r"\xe6\x97"),
        ("é日".encode()[1:], r"\xa9日"),
        ("\u0301", r"\u0301"),
        ("e\u0301", "e\u0301"),
        ("\n\u0301", r"\n\u0301"),
        ("\u00a0\u200b\u202e", r"\u00a0\u200b\u202e"),
        ("\U000e0041", r"\U000e0041"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),
        (b"\x00\x1b[31m", r"\u0000\u001b[31m"),
        ("▁the", "▁the"),
    ],
)
def test_what_cannot_be_seen_is_spelled(token: str | bytes, expected: str) -> None:
    raw = token if isinstance(token, bytes) else token.encode()
    assert "".join(text for text, _ in spell(raw)) == expected


def test_a_border_in_the_text_is_no_border() -> None:
    assert spell("a│".encode(), border="│") == (("a", False), (r"\│", True))
    assert spell("a│".encode()) == (("a", False), ("│", False))


def test_what_the_encoding_of_the_output_lacks_is_spelled() -> None:
    assert "".join(t for t, _ in spell("añ日".encode(), encoding="latin-1")) == r"añ\u65e5"


def test_lines_are_cut_between_tokens_and_a_long_token_goes_on() -> None:
    ribbon = Ribbon(colour=False, width=14)
    pieces = [ribbon.token(t) for t in (b"one", b" two", b" three", b"x" * 20)]
    assert [line.plain for line in ribbon.lines(pieces, 0)] == [
        "│one│ two│",
        "│ three│",
        "│xxxxxxxxxxxx",
        "xxxxxxxx│",
    ]


@pytest.mark.parametrize(
    ("last", "lines"), [(b"abc", ["│one│ two│abc│"]), (b"abcd", ["│one│ two│", "│abcd│"])]
)
def test_a_line_is_filled_to_its_last_column(last: bytes, lines: list[str]) -> None:
    ribbon = Ribbon(colour=False, width=14)
    shown = ribbon.lines([ribbon.token(t) for t in (b"one", b" two", last)], 0)
    assert [line.plain for line in shown] == lines


def test_wide_characters_take_two_columns() -> None:
    ribbon = Ribbon(colour=False, width=14)
    lines = ribbon.lines([ribbon.token(t.encode()) for t in ("日本語", "本語", "語")], 0)
    assert [line.plain for line in lines] == ["│日本語│本語│", "│語│"]


def test_labels_stand_before_the_first_line_only() -> None:
    lines = beside(["p=0", "2 tokens"], [Text("│a│"), Text("│b│")])
    assert [line.plain for line in lines] == ["p=0  2 tokens  │a│", "               │b│"]


def test_a_token_without_bytes_is_seen() -> None:
    ribbon = Ribbon(colour=False, width=None)
    assert [line.plain for line in ribbon.lines([ribbon.token(b"")], 0)] == ["│\\(nothing)│"]


def test_nothing_is_one_empty_line() -> None:
    assert [line.plain for line in Ribbon(colour=False, width=20).lines([], 3)] == [""]
