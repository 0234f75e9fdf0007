"""The free blocks of a pool, as aligned pieces of a power of two of blocks (buddies). No MLX.

A piece starts at a multiple of its size, counted within its segment; two free halves of a larger
piece are always joined. What is done to a piece costs the logarithm of the pool's size at most.
(Knowlton, "A fast storage allocator", 1965.)
"""

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import accumulate


def power_above(number: int) -> int:
    """Return the smallest power of two that is at least `number`, which is 1 or more."""
    assert number >= 1
    return 1 << (number - 1).bit_length()


class _Starts:
    """A set of numbers of which the smallest is at hand."""

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._heap: list[int] = []  # the members, and some that were taken out

    def __contains__(self, start: int) -> bool:
        return start in self._members

    def __len__(self) -> int:
        return len(self._members)

    def add(self, start: int) -> None:
        assert start not in self._members, "a free block was given back"
        self._members.add(start)
        heappush(self._heap, start)
        if len(self._heap) > 2 * len(self._members) + 16:
            self._heap = list(self._members)
            heapify(self._heap)

    def remove(self, start: int) -> None:
        self._members.remove(start)

    def pop(self) -> int:
        """Take the smallest out."""
        while True:
            start = heappop(self._heap)
            if start in self._members:
                self._members.remove(start)
                return start


class FreeSpace:
    """Which blocks are free. Blocks are numbered from 0, through all segments."""

    def __init__(self) -> None:
        self.count = 0
        """Number of free blocks."""
        self._segments: list[int] = []
        self._ends: list[int] = []
        self._pieces: list[_Starts] = []
        """Starts of the free pieces of 1, 2, 4, ... blocks."""

    @property
    def segments(self) -> Sequence[int]:
        """Number of blocks of each segment."""
        return self._segments

    @property
    def largest(self) -> int:
        """Blocks of the largest free piece; 0 if nothing is free."""
        for power in range(len(self._pieces) - 1, -1, -1):
            if self._pieces[power]:
                return 1 << power
        return 0

    def add_segment(self, blocks: int) -> None:
        """Add blocks, all free."""
        self._segments.append(blocks)
        self._ends = list(accumulate(self._segments))
        while len(self._pieces) < blocks.bit_length():
            self._pieces.append(_Starts())
        self.give(self._ends[-1] - blocks, blocks)

    def segment_of(self, block: int) -> tuple[int, int]:
        """Return the first block of the segment in which a block is, and the one after its last."""
        at = bisect_right(self._ends, block)
        return self._ends[at] - self._segments[at], self._ends[at]

    def take(self, size: int) -> int | None:
        """Take a piece, `size` being a power of two; return its start, or None if there is none.

        It is cut from the smallest piece that is large enough, of these the first in the pool.
        """
        wanted = size.bit_length() - 1
        for power in range(wanted, len(self._pieces)):
            if self._pieces[power]:
                start = self._pieces[power].pop()
                for half in range(power - 1, wanted - 1, -1):
                    self._pieces[half].add(start + (1 << half))
                self.count -= size
                return start
        return None

    def take_at(self, start: int, size: int) -> bool:
        """Take the piece of `size` blocks that starts at `start`, if all of it is free."""
        if not 0 <= start < (self._ends[-1] if self._ends else 0):
            return False
        first, _ = self.segment_of(start)
        assert (start - first) % size == 0
        power = self._power_over(first, start - first)
        if power is None or 1 << power < size:
            return False
        self._cut(first, start - first, power, size)
        return True

    def take_after(self, block: int, most: int) -> int:
        """Take up to `most` free blocks right after `block`, in its segment; return how many."""
        first, end = self.segment_of(block)
        at, taken = block + 1, 0
        while taken < most and at < end:
            power = self._power_over(first, at - first)
            if power is None:
                break
            piece_end = first + ((at - first >> power) + 1 << power)
            count = min(most - taken, piece_end - at)
            self._cut(first, at - first, power, count)
            at += count
            taken += count
        return taken

    def give(self, start: int, count: int) -> None:
        """Give neighbouring blocks of one segment back."""
        first, end = self.segment_of(start)
        assert start + count <= end, "blocks of two segments"
        self.count += count
        at, stop = start - first, start + count - first
        while at < stop:
            size = 1 << (stop - at).bit_length() - 1
            if at:
                size = min(size, at & -at)
            self._join(first, end - first, at, size.bit_length() - 1)
            at += size

    def _power_over(self, first: int, at: int) -> int | None:
        """Return the power of the free piece in which place `at` of a segment lies, if any."""
        for power, starts in enumerate(self._pieces):
            if first + (at >> power << power) in starts:
                return power
        return None

    def _cut(self, first: int, at: int, power: int, count: int) -> None:
        """Take `count` blocks from place `at` on out of a free piece, and leave the rest of it."""
        begin = at >> power << power
        end = begin + (1 << power)
        self._pieces[power].remove(first + begin)
        self.count -= 1 << power
        if at > begin:
            self.give(first + begin, at - begin)
        if at + count < end:
            self.give(first + at + count, end - at - count)

    def _join(self, first: int, blocks: int, at: int, power: int) -> None:
        """Add a free piece, joined with its other half for as long as that is free too."""
        while True:
            other = at ^ 1 << power
            if other + (1 << power) > blocks or first + other not in self._pieces[power]:
                break
            self._pieces[power].remove(first + other)
            at = min(at, other)
            power += 1
        self._pieces[power].add(first + at)
