"""Buddies against a set of numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxgpt.infer.paged.free_space import FreeSpace, power_above


def space(*segments: int) -> FreeSpace:
    free = FreeSpace()
    for blocks in segments:
        free.add_segment(blocks)
    return free


def test_the_next_power_of_two() -> None:
    assert [power_above(n) for n in (1, 2, 3, 4, 5, 8, 9)] == [1, 2, 4, 4, 8, 8, 16]


def test_pieces_are_cut_from_the_smallest_that_is_large_enough() -> None:
    free = space(8, 16)
    assert [free.take(size) for size in (16, 2, 1, 4)] == [8, 0, 2, 4]
    assert free.count == 1
    assert free.take(2) is None
    assert free.take(1) == 3
    assert free.largest == 0
    free.give(8, 16)
    assert free.largest == 16
    assert free.take(4) == 8, "a piece starts at a multiple of its size in its segment"


def test_halves_are_joined_within_a_segment_only() -> None:
    free = space(4, 4)
    assert [free.take(4), free.take(4)] == [0, 4]
    for block in (3, 4, 1, 0, 2, 6, 7, 5):
        free.give(block, 1)
    assert free.largest == 4
    assert free.count == 8
    odd = space(3, 5)
    assert odd.take(4) == 3
    assert odd.take(2) == 0
    assert odd.take(1) == 2
    assert odd.take(1) == 7


def test_what_follows_a_block_is_taken_up_to_the_end_of_its_segment() -> None:
    free = space(8, 8)
    assert free.take(2) == 0
    assert free.take_after(1, 3) == 3
    assert free.take_after(4, 9) == 3
    assert free.take_after(7, 9) == 0
    assert free.count == 8
    free.give(3, 2)
    assert free.take_after(2, 9) == 2


def test_a_block_is_not_given_back_twice() -> None:
    free = space(4)
    with pytest.raises(AssertionError):
        free.give(0, 4)


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 24), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 70), st.integers(1, 12)), max_size=60),
)
def test_any_use(segments: list[int], operations: list[tuple[int, int, int]]) -> None:
    free, everything = space(*segments), set(range(sum(segments)))
    ends = [sum(segments[: i + 1]) for i in range(len(segments))]
    left = set(everything)

    def first_of(block: int) -> int:
        return max([0, *(end for end in ends if end <= block)])

    def fits(start: int, size: int) -> bool:
        inside = first_of(start) == first_of(start + size - 1)
        return inside and set(range(start, start + size)) <= left

    for kind, place, number in operations:
        place %= len(everything)
        size = power_above(number)
        aligned = place - (place - first_of(place)) % size
        if kind == 0:
            start = free.take(size)
            every = [s for s in everything if (s - first_of(s)) % size == 0 and fits(s, size)]
            assert (start is None) == (not every)
            if start is not None:
                assert start in every
                left -= set(range(start, start + size))
        elif kind == 1:
            took = free.take_at(aligned, size)
            assert took == fits(aligned, size)
            if took:
                left -= set(range(aligned, aligned + size))
        elif kind == 2:
            taken, at = 0, place + 1
            while taken < number and at in left and first_of(at) == first_of(place):
                taken, at = taken + 1, at + 1
            assert free.take_after(place, number) == taken
            left -= set(range(place + 1, at))
        else:
            end = place
            while (
                end < place + number and end in everything - left and end not in (place, *ends)[1:]
            ):
                end += 1
            if end > place:
                free.give(place, end - place)
                left |= set(range(place, end))
        assert free.count == len(left)
        sizes = [
            s for s in (1, 2, 4, 8, 16) for b in left if not (b - first_of(b)) % s and fits(b, s)
        ]
        assert free.largest == max(sizes, default=0)
