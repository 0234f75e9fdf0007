from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.infer.sampling import StopText


def until_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    """What comes before the string that is complete first, the longest of several such."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


LETTERS = st.text("ab", max_size=14)


@given(LETTERS, st.lists(st.text("ab", min_size=1, max_size=5), max_size=4), st.data())
def test_the_pieces_do_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    expected, stopped = until_stop(text, stops)
    for places in (cuts, range(len(text)), []):
        seen = StopText(stops)
        shown, fed = "", 0
        for place in [*places, len(text)]:
            shown += seen.push(text[fed:place])
            fed = place
            assert expected.startswith(shown)
            assert seen.stopped == until_stop(text[:fed], stops)[1]
            # Nothing is held back that cannot begin a stop string.
            held = until_stop(text[:fed], stops)[0][len(shown) :]
            assert seen.stopped or not held or any(s.startswith(held) for s in stops)
        shown += seen.finish()
        assert (shown, seen.stopped) == (expected, stopped)
        if len(stops) == 1 and stopped:
            assert shown == text[: text.index(stops[0])]


def test_by_hand() -> None:
    seen = StopText(["\n\n", "User:"])
    assert [seen.push(p) for p in ("Yes", ".\n", "Us", "e it.", "\nUse", "r: no", "more")] == [
        "Yes", ".", "\n", "Use it.", "\n", "", "",
    ]  # fmt: skip
    assert seen.stopped
    assert seen.finish() == ""


def test_the_string_that_is_complete_first_counts() -> None:
    for pieces in (["xabcdy"], list("xabcdy"), ["xab", "cdy"]):
        seen = StopText(["abcd", "bc"])
        assert "".join(seen.push(p) for p in pieces) == "xa"
        seen = StopText(["c", "abc"])
        assert "".join(seen.push(p) for p in pieces) == "x"


def test_what_was_held_back_comes_at_the_end() -> None:
    seen = StopText(("stop",))
    assert seen.push("a st") == "a "
    assert not seen.stopped
    assert seen.finish() == "st"
    assert seen.finish() == ""
    free = StopText(())
    assert (free.push("anything"), free.finish(), free.stopped) == ("anything", "", False)
