"""Where texts lie in a pool -> which of them to move where, to make attention cheaper. No MLX.

Attention reads a stretch of neighbouring blocks as it lies, and stretches of several texts at equal
distances in one operation. So a text should lie in one stretch, and texts that need equally much
room side by side, at multiples of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mlxgpt.infer.paged.free_space import FreeSpace, power_above


@dataclass(frozen=True)
class Lying:
    """Where those blocks of one text lie that can be moved."""

    stretches: list[tuple[int, int]]
    """(first block, number) of each."""
    unfilled: int
    """Blocks that are kept free for more of the text."""

    @property
    def count(self) -> int:
        return sum(number for _, number in self.stretches)

    @property
    def room(self) -> int:
        """Blocks that the text needs, with what is kept free, as a power of two."""
        return power_above(self.count + self.unfilled)


@dataclass(frozen=True)
class Move:
    """The last `count` blocks of a text go to a piece of `size` blocks that starts at `start`."""

    text: int
    count: int
    start: int
    size: int


class _Neighbours:
    """Which texts lie in one stretch, at a multiple of the room that they need."""

    def __init__(self, free: FreeSpace) -> None:
        self._free = free
        self._starts: dict[int, dict[int, None]] = defaultdict(dict)

    def add(self, start: int, size: int) -> None:
        if self._aligned(start, size):
            self._starts[size][start] = None

    def remove(self, start: int, size: int) -> None:
        self._starts[size].pop(start, None)

    def beside(self, start: int, size: int) -> bool:
        """Return whether a text in this place has a neighbour that needs equally much room."""
        starts = self._starts[size]
        return self._aligned(start, size) and (start - size in starts or start + size in starts)

    def take_beside(self, size: int) -> int | None:
        """Take a free piece beside a text that needs equally much room."""
        for neighbour in self._starts[size]:
            first, end = self._free.segment_of(neighbour)
            for start in (neighbour - size, neighbour + size):
                inside = first <= start and start + size <= end
                if inside and self._free.take_at(start, size):
                    return start
        return None

    def _aligned(self, start: int, size: int) -> bool:
        return (start - self._free.segment_of(start)[0]) % size == 0


def moves(
    texts: Sequence[Lying], free: FreeSpace, most_blocks: int, *, lonely: bool
) -> Iterator[Move]:
    """Yield moves of `most_blocks` blocks in all; their targets have been taken out of `free`.

    Texts in many stretches come first; of one that is too long its end is moved. Then, if `lonely`,
    those which lie in one stretch, but not beside another that needs equally much room.
    """
    neighbours = _Neighbours(free)
    single = [i for i, text in enumerate(texts) if len(text.stretches) == 1]
    several = [i for i, text in enumerate(texts) if len(text.stretches) > 1]
    for i in single:
        neighbours.add(texts[i].stretches[0][0], texts[i].room)
    for i in sorted(several, key=lambda i: -len(texts[i].stretches)):
        count, whole = _end_of(texts[i], most_blocks)
        if not count:
            continue
        place = _place(neighbours, free, count, power_above(count + texts[i].unfilled))
        if place is not None:
            if whole:
                neighbours.add(*place)
            most_blocks -= count
            yield Move(i, count, *place)
    for i in single if lonely else ():
        start, count = texts[i].stretches[0]
        size = texts[i].room
        if count > most_blocks or neighbours.beside(start, size):
            continue
        neighbours.remove(start, size)
        target = neighbours.take_beside(size)
        neighbours.add(start if target is None else target, size)
        if target is not None:
            most_blocks -= count
            yield Move(i, count, target, size)


def _end_of(text: Lying, most_blocks: int) -> tuple[int, bool]:
    """Return how many blocks at the end of a text to move, and whether they are all it has."""
    count = stretches = 0
    for _, number in reversed(text.stretches):
        if count + number > most_blocks:
            break
        count += number
        stretches += 1
    return (count if stretches > 1 else 0), stretches == len(text.stretches)


def _place(
    neighbours: _Neighbours, free: FreeSpace, count: int, size: int
) -> tuple[int, int] | None:
    """Take a piece for `count` blocks, of `size` if possible; return its start and size."""
    for each in dict.fromkeys((size, power_above(count))):
        start = neighbours.take_beside(each)
        if start is None:
            start = free.take(each)
        if start is not None:
            return start, each
    return None
