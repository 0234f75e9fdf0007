"""Prompt lookup: what follows the latest earlier occurrence of the text's ending."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.speculative import NGram
from mlxgpt.infer.speculative import ngram as ngram_module


def text_of(token_ids: list[int], prompt_length: int = 1) -> Sequence:
    return Sequence(0, 0, prompt_length, list(token_ids), SamplingParams())


def by_definition(text: list[int], longest: int, shortest: int, count: int) -> list[int] | None:
    """Search the text for its ending, the longest first, from the back; then go round."""
    for size in range(longest, shortest - 1, -1):
        for place in range(len(text) - 1, size - 1, -1):
            if len(text) > size and text[place - size : place] == text[-size:]:
                guesses = list(text)
                for i in range(count):
                    guesses.append(guesses[place + i])
                return guesses[len(text) :]
    return None


def test_known_texts() -> None:
    proposer = NGram()
    text = text_of([7, 1, 2, 3, 4, 9, 1, 2])
    assert proposer.propose({text: 3})[text].token_ids == [3, 4, 9]
    assert proposer.propose({text: 3})[text].logprobs is None
    assert proposer.propose({text: 0}) == {}
    assert proposer.propose({text_of([1, 2, 3, 4]): 3}) == {}  # nothing occurs twice
    assert proposer.propose({text_of([5, 1, 6, 1]): 3}) == {}  # one token is too short
    assert proposer.propose({text_of([3]): 2}) == {}


def test_a_loop_is_continued_past_the_end_of_the_text() -> None:
    text = text_of([8, 1, 2, 3, 1, 2, 3, 1])
    assert NGram().propose({text: 8})[text].token_ids == [2, 3, 1, 2, 3, 1, 2, 3]
    same = text_of([4, 4, 4, 4])
    assert NGram().propose({same: 5})[same].token_ids == [4] * 5


def test_the_longest_ending_decides_and_then_the_latest_place() -> None:
    text = text_of([1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3])
    assert NGram(3, 2).propose({text: 1})[text].token_ids == [50]
    assert NGram(2, 2).propose({text: 1})[text].token_ids == [60]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=40),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 12),
)
def test_growing_token_by_token_finds_what_a_search_finds(
    token_ids: list[int], prompt: int, shortest: int, more: int, count: int
) -> None:
    proposer = NGram(shortest + more, shortest)
    text = text_of(token_ids[:prompt])
    rest = token_ids[prompt:]
    while True:
        expected = by_definition(text.token_ids, shortest + more, shortest, count)
        got = proposer.propose({text: count}).get(text)
        assert (got and got.token_ids) == expected
        assert got is None or set(got.token_ids) <= set(text.token_ids)
        if not rest:
            return
        text.token_ids += [rest.pop(0) for _ in range(min(1 + count % 3, len(rest)))]


def test_texts_do_not_see_each_other_and_are_forgotten() -> None:
    proposer = NGram()
    one, other = text_of([1, 2, 3, 1, 2]), text_of([9, 9, 8, 1, 2])
    got = proposer.propose({one: 2, other: 2})
    assert got.keys() == {one}
    proposer.forget(one)
    proposer.forget(one)  # twice is no fault
    one.token_ids[:] = [5, 6, 7, 5, 6]
    assert proposer.propose({one: 1})[one].token_ids == [7]
    proposer.forget(one)
    proposer.forget(other)
    assert not proposer._indexes


def test_a_token_costs_the_same_at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted, not timed: stretches entered for each new token."""
    entered = 0

    class Counting(dict):  # type: ignore[type-arg]
        def __setitem__(self, key: object, value: object) -> None:
            nonlocal entered
            entered += 1
            super().__setitem__(key, value)

    plain = ngram_module._Index.__init__

    def counted(self: ngram_module._Index, longest: int, shortest: int) -> None:
        plain(self, longest, shortest)
        self._ends = Counting()

    monkeypatch.setattr(ngram_module._Index, "__init__", counted)
    proposer, text, counts = NGram(4, 2), text_of(list(range(50))), []
    for token in range(300):
        text.token_ids.append(token)
        proposer.propose({text: 2})
        counts.append(entered)
    assert {b - a for a, b in pairwise(counts)} == {3}


@pytest.mark.parametrize(("longest", "shortest"), [(1, 2), (4, 0), (0, 0)])
def test_sizes_without_meaning_are_refused(longest: int, shortest: int) -> None:
    with pytest.raises(ConfigError, match="must be at least"):
        NGram(longest, shortest)
