"""The tokenizer benchmark is fair: fresh text in every round, and a wrong id is told."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]

with pytest.MonkeyPatch.context() as patch:
    # The package sets these two for its own process; here they go back to what they were.
    patch.setenv("RAYON_NUM_THREADS", "")
    patch.setenv("TOKENIZERS_PARALLELISM", "")
    patch.syspath_prepend(ROOT)
    from benchmarks.tokenizer.comparison import Comparison, compare
    from benchmarks.tokenizer.race import Entrant, race
    from benchmarks.tokenizer.texts import Text, cut, english_and_others
    from benchmarks.tokenizer.trainers import agreement


def lengths(documents: Sequence[str]) -> list[list[int]]:
    return [[len(d)] for d in documents]


def lengths_but_for_x(documents: Sequence[str]) -> list[list[int]]:
    return [[len(d), 0] if "x" in d else [len(d)] for d in documents]


@given(st.lists(st.text("ab \nä語", max_size=900), max_size=5), st.integers(1, 2000))
def test_cutting_loses_nothing(parts: list[str], size: int) -> None:
    pieces = list(cut(parts, size))
    assert "".join(pieces) == "".join(parts)
    assert all(len(piece.encode()) >= size for piece in pieces[:-1])


def test_no_line_is_in_two_rounds_or_in_a_round_and_the_sample() -> None:
    text = Text("English", "", "".join(f"line {i}\n" for i in range(100_000)))
    parts = [*text.hands(7), text.sample()]
    lines = [set("".join(documents).split("\n")) - {""} for documents in parts]
    assert sum(map(len, lines)) == len(set(chain(*lines))) == 100_000
    assert len(lines[-1]) == pytest.approx(20_000, rel=0.02)
    assert max(map(len, lines[:-1])) < 1.3 * min(map(len, lines[:-1]))


def test_files_are_english_or_not_by_what_is_in_them(tmp_path: Path) -> None:
    english = "An English text—mostly—with “quotes”, and a good many letters beside them. " * 9
    for name, text in (
        ("a", english + "x" * 2000),
        ("b", "l’été, la mère et le garçon"),
        ("c", "语"),
    ):
        (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "d.json").write_text("{}", encoding="utf-8")
    found, others = english_and_others(tmp_path)
    assert (list(found), list(others)) == (["a.txt"], ["b.txt", "c.txt"])
    assert found["a.txt"].startswith(english)


def test_a_difference_in_the_ids_is_counted_in_counted_rounds_only() -> None:
    entrants = [Entrant("right", lengths), Entrant("wrong", lengths_but_for_x)]
    hands = [["x", "x"], ["a", "bx"], ["x", "c", "d"]]
    paces = race("", entrants, hands, warmup=1, reference="right")
    assert paces["wrong"].ids == "2 of 5 documents DIFFER"
    assert paces["right"].ids == ""
    assert [len(pace.rates) for pace in paces.values()] == [2, 2]


def test_every_entrant_begins_a_round_in_turn() -> None:
    order: list[str] = []

    def entrant(name: str) -> Entrant:
        return Entrant(name, lambda documents: order.append(name) or lengths(documents))

    paces = race("", [entrant("a"), entrant("b")], [["x"]] * 4, warmup=0, reference="a")
    assert "".join(order) == "abbaabba"
    assert paces["b"].ids == "equal"


def test_ratios_are_taken_round_by_round_and_held_against_the_target_of_the_text() -> None:
    text = Text("many scripts", "", "")
    paces = race("", [Entrant("a", lengths), Entrant("b", lengths)], [["x"]] * 3, warmup=0)
    paces["a"].rates, paces["b"].rates = [10.0, 40.0, 90.0], [10.0, 10.0, 30.0]
    both = [Comparison("a", "b", (9.0, None, 2.5)), Comparison("a", "not installed")]
    (row,) = compare(text, paces, both)
    assert (row.ratios, row.ratio, row.target, row.met) == ((1.0, 4.0, 3.0), 3.0, 2.5, True)
    assert row.cell(judge=True) == "3.00\n1.00 - 4.00\n2.5 met"
    paces["b"].rates[2] = 90.0
    assert compare(text, paces, both)[0].cell(judge=True) == "1.00\n1.00 - 4.00\n2.5 MISSED"


def test_what_was_learned_is_compared_in_order() -> None:
    assert agreement([b"a", b"b"], [b"a", b"b"]) == "all 2"
    assert agreement([b"a", b"c", b"b"], [b"a", b"b", b"c"]) == "first 1, 3 in any order"
    assert agreement([b"a"], [b"a", b"b"]) == "first 1, 1 in any order"
