"""`sample`: draws with weight 1 / length, so that every length gives as many ids; none by chance.

Independent draws would do, but leave counts as uneven as dice do. Here the draws go in rounds.

The examples stand in a row by length, each as wide as its weight, and the row is cut into M equal
strata, M being as large as it can be without an example wider than a stratum. A round takes one
draw from each stratum, in an order of its own. The place within stratum j in round r is the
fractional part of offset_j + r * rotation_j: a Kronecker sequence, which fills the stratum evenly
from the first round on. Its rotations are irrational numbers that fractions approximate badly, and
differ between strata, so that those who meet in one round part in the next.

So after any number of draws the count of each example, and that of each range of lengths, is near
its expectation: off by less than 1 from the round that is not over, and by the discrepancy of two
Kronecker sequences, which grows with the logarithm of the rounds only.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mlxgpt.data.sft.drawing import Row
from mlxgpt.data.sft.drawings.passes import not_negative, rounded_up
from mlxgpt.seeding import generator

_QUOTIENTS = 12
"""Drawn partial quotients of a rotation: 2^12 different ones."""


class InverseLength:
    """Each draw is one row; a pass is as many draws as there are examples."""

    def __init__(self, lengths: np.ndarray, rows_per_step: int, seed: int) -> None:
        """`lengths` (N,): ids."""
        self._rows_per_step = rows_per_step
        self._seed = seed
        self._weights = 1 / lengths.astype(np.float64)
        drawn = generator(seed, "sample-ties").permutation(len(lengths))
        self._order = drawn[np.argsort(lengths[drawn], kind="stable")]
        self._ends = np.cumsum(self._weights[self._order])
        widest = float(self._weights.max())
        # The sum is off by some 1e-16 an example, which must not cost a stratum.
        self._strata = max(1, math.floor(self._ends[-1] / widest * (1 + 1e-9)))
        self._offsets = generator(seed, "sample-offsets").integers(
            2**64, size=self._strata, dtype=np.uint64
        )
        self._rotations = _rotations(self._strata, seed)
        self._round = lru_cache(maxsize=4)(self._draw_round)

    @property
    def shares(self) -> np.ndarray:
        return self._weights / self._weights.sum()

    def rows(self, step: int) -> Sequence[Row]:
        first = not_negative(step) * self._rows_per_step
        rows: list[Row] = []
        while len(rows) < self._rows_per_step:
            which, place = divmod(first + len(rows), self._strata)
            left = self._rows_per_step - len(rows)
            rows += [(index,) for index in self._round(which)[place : place + left].tolist()]
        return rows

    def epoch(self, steps: int) -> float:
        return not_negative(steps) * self._rows_per_step / len(self._order)

    def steps_in(self, epochs: float) -> int:
        return max(1, rounded_up(epochs * len(self._order) / self._rows_per_step))

    def _draw_round(self, which: int) -> np.ndarray:
        """Return the examples of round `which`, one of each stratum, in their order."""
        stratum = generator(self._seed, "sample-round", which).permutation(self._strata)
        # Modulo 2^64, so that no round is so late that digits are lost.
        turned = self._offsets[stratum] + np.uint64(which % 2**64) * self._rotations[stratum]
        inside = (turned >> np.uint64(11)) * 2.0**-53
        at = (stratum + inside) * (self._ends[-1] / self._strata)
        found = np.searchsorted(self._ends, at, side="right")
        return self._order[np.minimum(found, len(self._order) - 1)]


def _rotations(count: int, seed: int) -> np.ndarray:
    """Return `count` numbers between 0 and 1, badly approximable, as uint64 fractions of 2^64.

    Their continued fractions begin with drawn quotients of 1 and 2 and end in ones, like the golden
    ratio's (Khinchin, Continued Fractions, section 9).
    """
    quotients = generator(seed, "sample-rotations").integers(1, 3, size=(_QUOTIENTS, count))
    rotation = np.full(count, (math.sqrt(5) - 1) / 2)
    for quotient in quotients:
        rotation = 1 / (quotient + rotation)
    return (rotation * 2.0**53).astype(np.uint64) << np.uint64(11)
