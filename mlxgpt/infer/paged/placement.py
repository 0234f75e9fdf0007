"""Where in a pool a text's next blocks lie: room kept free behind it, growth. No MLX.

A text gets a run of neighbouring blocks, more than it needs now, and fills it block by block. What
is not filled still counts as available: it is taken back, from those who have most of it, before
the pool is said to be full. What is only kept for texts to come makes way for long runs too: where
it fills the pool, every text would otherwise lie in the few small holes that are left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlxgpt.infer.paged.free_space import FreeSpace, power_above

_SMALLEST_SEGMENT = 4
_MOST_SEGMENTS = 8
_WORTH_GROWING = 4
"""A segment is added while texts could do without if this share (1/4) of the pool is filled."""
_AT_ONCE, _AT_ONCE_SHARE = 4, 32
"""A segment holds a text as long as it may become; but at most this many times (4) what is needed
of it now, or this share (1/32) of the pool."""
_CLEARED, _CLEARED_SHARE = 2, 4
"""For a run at most twice its blocks are evicted, and a quarter of what can be."""
_TAKEN_BACK = 8
"""Pieces that are taken back at most to find one that is large enough."""


class Reserve(Protocol):
    """Holds blocks that it can give back."""

    @property
    def evictable(self) -> int:
        """Number of blocks that can be given back."""
        ...

    def evict(self, count: int) -> int:
        """Give back up to `count` blocks; return how many."""
        ...


@dataclass(eq=False)
class Run:
    """Neighbouring blocks kept for one text: filled before `next`, free for it up to `end`."""

    start: int
    next: int
    end: int

    @property
    def unfilled(self) -> int:
        """Blocks that may still be filled."""
        return self.end - self.next


class Placement:
    """All blocks of a pool of at most `capacity`: filled, kept free behind a text, or free."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = FreeSpace()
        self.reserve: Reserve | None = None
        self._total = 0
        self._unfilled = 0
        self._runs: list[dict[Run, None]] = [{} for _ in range(capacity.bit_length() + 1)]
        """Runs with 1, 2-3, 4-7, ... unfilled blocks, from place 1 on."""

    @property
    def segments(self) -> Sequence[int]:
        """Number of blocks of each segment; each is at least twice as large as the one before, but
        for the last, and there are at most 8."""
        return self.free.segments

    @property
    def filled(self) -> int:
        """Blocks that are in use."""
        return self._total - self.free.count - self._unfilled

    @property
    def available(self) -> int:
        """Blocks that `place` can still fill."""
        return self.capacity - self.filled

    def place(
        self, run: Run | None, last: int | None, count: int, ahead: int
    ) -> tuple[list[int], Run]:
        """Fill `count` blocks; return them and the run in which the next ones will lie.

        `run` is where the text's last blocks were placed, `last` its last block. Room for `ahead`
        blocks, these included, is kept where it is free.
        """
        assert 1 <= count <= min(self.available, ahead)
        blocks: list[int] = []
        while True:
            if run is not None and run.unfilled:
                some = min(count - len(blocks), run.unfilled)
                blocks += range(run.next, run.next + some)
                self._set(run, run.next + some, run.end)
                last = run.next - 1
            if run is not None and len(blocks) == count:
                return blocks, run
            left = len(blocks)
            if run is not None and last is not None and last == run.end - 1:
                more = self.free.take_after(last, ahead - left)
                self._set(run, run.next, run.end + more)
            if run is None or not run.unfilled:
                run = self._open(count - left, ahead - left)

    def take_back(self, run: Run, block: int) -> bool:
        """Take the block that was filled last out of its run; False if it is another block."""
        if not run.start <= block == run.next - 1:
            return False
        self._set(run, block, run.end)
        return True

    def close(self, run: Run) -> None:
        """Keep nothing free any more behind a text that has ended or moved."""
        unfilled = run.unfilled
        self._set(run, run.next, run.next)
        if unfilled:
            self.free.give(run.next, unfilled)

    def occupy(self, start: int, filled: int, size: int) -> Run:
        """Return a run on a piece that was taken out of what is free."""
        run = Run(start, start, start)
        self._set(run, start + filled, start + size)
        return run

    def give(self, blocks: Sequence[int]) -> None:
        """Give filled blocks back."""
        begin = 0
        for i, block in enumerate(blocks):
            follows = i + 1 < len(blocks) and blocks[i + 1] == block + 1
            if not follows or self.free.segment_of(block)[1] == block + 1:
                self.free.give(blocks[begin], i + 1 - begin)
                begin = i + 1

    def _open(self, count: int, ahead: int) -> Run:
        """Return a new run for `ahead` blocks if possible, else fewer, but one at least.

        Others give up what they have not filled only where `count` blocks would not fit.
        """
        wanted, needed = power_above(ahead), power_above(count)
        worth = _WORTH_GROWING * (self.filled + count) >= self._total
        if worth and self._total < self.capacity and self.free.largest < wanted:
            share = power_above(self.capacity) // _AT_ONCE_SHARE
            self._grow(min(wanted, max(_AT_ONCE * needed, share)))
        self._clear(wanted)
        tries = 0
        while self._unfilled and (largest := self.free.largest) < needed:
            if largest and tries >= _TAKEN_BACK:
                break
            self._shorten_longest()
            tries += 1
        size = min(wanted, self.free.largest)
        start = self.free.take(size)
        assert start is not None
        return self.occupy(start, 0, size)

    def _clear(self, size: int) -> None:
        """Evict what is kept for later until a piece of `size` is free, or enough was evicted."""
        if self.reserve is None:
            return
        most = min(_CLEARED * size, self.reserve.evictable // _CLEARED_SHARE)
        while most > 0 and self.free.largest < size:
            most -= self.reserve.evict(min(most, -(-size // 4)))

    def _shorten_longest(self) -> None:
        """Take the last piece of a run with the most unfilled blocks, or nearly so, back."""
        runs = next(runs for runs in reversed(self._runs) if runs)
        run = next(iter(runs))
        place = run.end - self.free.segment_of(run.next)[0]
        size = min(place & -place, 1 << run.unfilled.bit_length() - 1)
        self._set(run, run.next, run.end - size)
        self.free.give(run.end, size)

    def _grow(self, blocks: int) -> None:
        """Add a segment of `blocks` or more, if so many may still be added."""
        last = self.segments[-1] if self.segments else 0
        share = power_above(-(-self.capacity // (2**_MOST_SEGMENTS - 1)))
        size = max(2 * last, blocks, share, _SMALLEST_SEGMENT)
        left = self.capacity - self._total
        if left < size + size // 2:  # nothing small remains for later
            size = left
        self.free.add_segment(size)
        self._total += size

    def _set(self, run: Run, begin: int, end: int) -> None:
        before, after = run.unfilled.bit_length(), (end - begin).bit_length()
        self._unfilled += end - begin - run.unfilled
        run.next, run.end = begin, end
        if before != after:
            if before:
                del self._runs[before][run]
            if after:
                self._runs[after][run] = None
