"""`bucket`: all rows of a step are of about one length, so that hardly a place is padding."""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from mlxgpt.data.sft.drawing import Row
from mlxgpt.data.sft.drawings.passes import not_negative, rounded_up
from mlxgpt.seeding import generator


class LengthBins:
    """Bins of equal width between the shortest and the longest example; empty ones are skipped.

    A round visits each bin once, in an order of its own, and each visit is one step. A bin gives
    its examples in a drawn order and, when that is at its end, in another one; across that seam,
    too, no example stands twice in a step. A bin of fewer examples than a step has rows gives all
    of them at each visit and nothing twice: a short step, which is the bin's exact mean.
    """

    def __init__(self, lengths: np.ndarray, rows_per_step: int, num_bins: int, seed: int) -> None:
        """`lengths` (N,): ids."""
        self._rows_per_step = rows_per_step
        self._num_examples = len(lengths)
        self._seed = seed
        bin_of = bins_of(lengths, num_bins)
        by_bin = np.argsort(bin_of, kind="stable")
        self._members = np.split(by_bin, np.flatnonzero(np.diff(bin_of[by_bin])) + 1)
        """Of each bin that is not empty, from the shortest to the longest."""
        self._visit_rows = [min(len(m), rows_per_step) for m in self._members]
        self._round = lru_cache(maxsize=4)(self._draw_round)
        # A step touches two orders of one bin; the steps of all bins come in turn.
        self._raw = lru_cache(maxsize=2 * len(self._members) + 2)(self._draw_order)
        self._order = lru_cache(maxsize=2 * len(self._members) + 2)(self._order_without_seam)

    @property
    def shares(self) -> np.ndarray:
        total, shares = sum(self._visit_rows), np.empty(self._num_examples)
        for members, rows in zip(self._members, self._visit_rows, strict=True):
            shares[members] = rows / (total * len(members))
        return shares

    def rows(self, step: int) -> Sequence[Row]:
        visit, place = divmod(not_negative(step), len(self._members))
        which = int(self._round(visit)[place])
        members, rows = self._members[which], self._visit_rows[which]
        first, taken = visit * rows, []
        while len(taken) < rows:
            turn, start = divmod(first + len(taken), len(members))
            taken += self._order(which, turn)[start : start + rows - len(taken)].tolist()
        return [(index,) for index in taken]

    def epoch(self, steps: int) -> float:
        rounds, inside = divmod(not_negative(steps), len(self._members))
        rows = rounds * sum(self._visit_rows)
        rows += sum(self._visit_rows[i] for i in self._round(rounds)[:inside].tolist())
        return rows / self._num_examples

    def steps_in(self, epochs: float) -> int:
        rows = max(1, rounded_up(epochs * self._num_examples))
        rounds, left = divmod(rows, sum(self._visit_rows))
        inside = [0, *accumulate(self._visit_rows[i] for i in self._round(rounds).tolist())]
        return rounds * len(self._members) + bisect_left(inside, left)

    def _draw_round(self, visit: int) -> np.ndarray:
        return generator(self._seed, "bins-round", visit).permutation(len(self._members))

    def _draw_order(self, which: int, turn: int) -> np.ndarray:
        return generator(self._seed, "bins-order", which, turn).permutation(self._members[which])

    def _order_without_seam(self, which: int, turn: int) -> np.ndarray:
        """Return the examples of bin `which` as its `turn`-th order has them.

        That is the drawn order, save that those of the step in which the order before ended are not
        at its beginning. In a bin of few steps, moving them can move its end, so that each order
        depends on the one before, back to one that begins with a step; that is never far.
        """
        count, rows = len(self._members[which]), self._visit_rows[which]
        # In three steps there is room for all moves, and the end stays as it was drawn.
        far = count < 3 * rows
        order = self._raw(which, turn)
        if not turn * count % rows:
            return order
        first = turn - 1
        while far and first * count % rows:
            first -= 1
        before = self._raw(which, first)
        for later in range(first + 1, turn + 1):
            last = before[count - later * count % rows :]
            before = order = _parted(self._raw(which, later), last, rows - len(last))
        return order


def _parted(order: np.ndarray, last: np.ndarray, head: int) -> np.ndarray:
    """Return `order`, but with none of `last` among the first `head`: others changed places."""
    again = np.isin(order[: 2 * (head + len(last))], last)  # enough of the others are in there
    inside = np.flatnonzero(again[:head])
    outside = head + np.flatnonzero(~again[head:])[: len(inside)]
    parted = order.copy()
    parted[inside], parted[outside] = order[outside], order[inside]
    return parted


def bins_of(lengths: np.ndarray, num_bins: int) -> np.ndarray:
    """Return the bin of each length, from 0: `num_bins` of equal width from least to greatest."""
    least, width = int(lengths.min()), int(lengths.max() - lengths.min())
    if width == 0:
        return np.zeros(len(lengths), dtype=np.int64)
    return np.minimum((lengths - least) * num_bins // width, num_bins - 1)
