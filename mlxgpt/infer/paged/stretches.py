"""Block tables -> stretches: neighbouring slots that hold neighbouring tokens. No MLX."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from mlxgpt.infer.paged.blocks import BlockTable


class Stretch(NamedTuple):
    """`size` tokens of a text from token `first` on, in slots of one segment from `start` on."""

    first: int
    segment: int
    start: int
    size: int


def stretches(table: BlockTable, block_size: int, segments: Sequence[int]) -> list[Stretch]:
    """Return the longest stretches of all tokens that a table still has, in order.

    `segments` is the number of blocks of each segment; no stretch crosses the end of one.
    """
    needed = -(-(table.length - table.dropped) // block_size)
    assert needed <= len(table.blocks), "a block is missing"
    ends = list(accumulate(segments))
    first, last = table.blocks[0], table.blocks[needed - 1]
    at = bisect_right(ends, first)
    if last < ends[at] and table.blocks[:needed] == list(range(first, last + 1)):  # most are
        start = (first - ends[at] + segments[at]) * block_size
        return [Stretch(table.dropped, at, start, table.length - table.dropped)]
    blocks = np.fromiter(table.blocks, dtype=np.int64, count=len(table.blocks))[:needed]
    new = np.diff(blocks) != 1
    for end in ends[:-1]:
        new |= blocks[1:] == end
    edges = [0, *(np.flatnonzero(new) + 1).tolist(), needed]
    found = []
    for a, b in pairwise(edges):
        segment = bisect_right(ends, int(blocks[a]))
        assert int(blocks[b - 1]) < ends[segment], "a block is outside of the pool"
        start = int(blocks[a]) - (ends[segment] - segments[segment])
        first = table.dropped + a * block_size
        count = min(table.dropped + b * block_size, table.length) - first
        found.append(Stretch(first, segment, start * block_size, count))
    return found


def between(found: Sequence[Stretch], begin: int, end: int) -> list[Stretch]:
    """Return the parts of stretches that hold tokens of [begin, end)."""
    kept = []
    for first, segment, start, size in found:
        low, high = max(first, begin), min(first + size, end)
        if low < high:
            kept.append(Stretch(low, segment, start + low - first, high - low))
    return kept
