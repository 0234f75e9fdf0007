"""Expressions of files: translated where both engines can say the same, else not taken over."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text import PATTERNS
from mlxgpt.text.pipeline.patterns import Pattern, compiled, translated
from mlxgpt.text.pipeline.pre_tokenizers import SPACE_MARKER, SpaceBorder
from mlxgpt.text.pipeline.unsupported import Unsupported


@pytest.mark.parametrize("expression", PATTERNS.values())
def test_the_patterns_with_names_stay_as_they_are(expression: str) -> None:
    assert translated(expression) == expression


@pytest.mark.parametrize(
    ("expression", "ours"),
    [
        (r"\w+", r"[\w²³¹¼½¾]+"),
        (r"[^\w\s]", r"[^\w²³¹¼½¾\s]"),
        (r"\W", r"[^\w²³¹¼½¾]"),
        (r"(a|b)c", r"(?:a|b)c"),
        (r"\u00e9", "é"),
        (r"[a||b]", r"[a\||b]"),
        (r"a]b}", r"a\]b\}"),
    ],
)
def test_what_can_be_said_otherwise_is(expression: str, ours: str) -> None:
    assert translated(expression) == ours
    assert compiled(ours).groups == 0


@pytest.mark.parametrize(
    "expression",
    [
        "^a", "a$", r"\ba", r"\h", r"\R", r"\x{41}", r"(a)\1", r"[[:alpha:]]", "[a&&b]", "[a--b]",
        "[[a]b]", "[]a]", "[a", r"[\W]", r"\p{Foo}", r"\pL", "a{2}+", "a{1,3}+", "a{2}?", "a**",
        "a{,}", "a{3,1}", "x{y", "(?i)a", "(?i:straße|ss)", "(?i:fi)", "(?m:a)", "(?P<n>a)",
        "(?<n>a)", "(?#c)", "a(", "", "\\",
    ],
)  # fmt: skip
def test_what_the_engines_read_differently_is_left_to_the_library(expression: str) -> None:
    with pytest.raises(Unsupported, match="pattern"):
        _ = Pattern("Regex", expression).compiled


def test_a_text_is_no_regular_expression() -> None:
    assert Pattern("String", "a.c$").compiled.findall("abc a.c$") == ["a.c$"]


PIECES = st.text("ab▁ -]^é\n", max_size=12)


@given(PIECES, st.sets(st.sampled_from("ab▁-]^é")))
def test_a_border_is_cut_before_each_marker_that_nothing_crosses(text: str, joined: set) -> None:
    border = SpaceBorder(SPACE_MARKER, "".join(sorted(joined)))
    words = border.split(text)
    assert "".join(words) == text
    assert all(words)
    cuts = [
        i
        for i in range(1, len(text))
        if text[i] == "▁" and text[i - 1] != "▁" and text[i - 1] not in joined
    ]
    assert words == [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True) if j]
    assert regex.findall(border.expression, text) == words
