"""Slots -> the updates that write them: slices where they lie evenly, one scatter for the rest."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import mlx.core as mx
import numpy as np

_WORTH_A_SLICE = 4
"""Neighbouring slots from which on an update of their own is cheaper than a part of a scatter."""
_FEW = 2
"""So many runs of slots are written as slices however short they are."""


@dataclass(frozen=True)
class Update:
    """Which of the given tokens go to which slots of one segment."""

    segment: int
    slots: slice | mx.array
    tokens: slice | mx.array


class Places:
    """Where N tokens go, in their order. Made once and used for every layer."""

    def __init__(self, slots: Sequence[int], segment_slots: Sequence[int]) -> None:
        """`segment_slots` is the number of slots of each segment; slots count through them."""
        self.count = len(slots)
        ends = list(accumulate(segment_slots))
        total = ends[-1] if ends else 0
        assert all(0 <= slot < total for slot in slots), "a slot is outside of the pool"
        every = np.asarray(slots, dtype=np.int64)
        self.updates: list[Update] = []
        if len(ends) == 1:
            self.updates = _updates(0, every, np.arange(self.count))
            return
        segments = np.array([bisect_right(ends, slot) for slot in slots], dtype=np.int64)
        for segment in sorted(set(segments.tolist())):
            tokens = np.flatnonzero(segments == segment)
            first = ends[segment] - segment_slots[segment]
            self.updates += _updates(segment, every[tokens] - first, tokens)


def _updates(segment: int, slots: np.ndarray, tokens: np.ndarray) -> list[Update]:
    """Cut the slots of one segment into runs of neighbours, and what is left over."""
    apart = (np.diff(slots) != 1) | (np.diff(tokens) != 1)
    edges = [0, *(np.flatnonzero(apart) + 1).tolist(), len(slots)]
    runs = [(a, b) for a, b in pairwise(edges) if b > a]
    few = len(runs) <= _FEW
    updates, rest = [], []
    for a, b in runs:
        if few or b - a >= _WORTH_A_SLICE:
            at, token = int(slots[a]), int(tokens[a])
            updates.append(Update(segment, slice(at, at + b - a), slice(token, token + b - a)))
        else:
            rest += range(a, b)
    if rest:
        updates.append(Update(segment, _even(slots[rest]), _even(tokens[rest])))
    return updates


def _even(numbers: np.ndarray) -> slice | mx.array:
    """Return ascending numbers at equal distances as a slice, and any others as they are."""
    steps = np.diff(numbers)
    if len(steps) and steps[0] > 0 and (steps == steps[0]).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1, int(steps[0]))
    return mx.array(numbers.astype(np.int32))
