"""Normal forms of Unicode: quick for any number of marks, and the same as Python's."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.text.pipeline.normalizers import UnicodeForm

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
MARKS = st.text(st.characters(categories=["Mn", "Mc", "Me"]), max_size=120)


@given(st.sampled_from(FORMS), st.text(max_size=3), MARKS, st.integers(1, 40), st.text(max_size=3))
def test_runs_of_marks_have_their_normal_form(form, before, marks, times, after) -> None:
    text = before + (marks * times)[:200] + after
    assert UnicodeForm(form).apply(text) == unicodedata.normalize(form, text)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", FORMS)
def test_many_marks_are_no_trap(form) -> None:
    """Python's own sorting of so many would take hours."""
    n = 500_000
    text = UnicodeForm(form).apply("a" + "\u0301\u0323" * n)
    assert len(text) == 2 * n + (0 if form in ("NFC", "NFKC") else 1)
