"""Which examples a step trains on, and which of them share a row: the seam of the pack modes."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

Row = Sequence[int]
"""Indices of the examples in one row of a batch, in their order."""


class Drawing(Protocol):
    """A way of drawing examples. A pure function of (seed, step): there is no position to lose."""

    @property
    def shares(self) -> np.ndarray:
        """Which part of all draws each example has in the long run: (N,) float64, sum 1."""
        ...

    def rows(self, step: int) -> Sequence[Row]:
        """Return the rows of optimizer step `step`, counted from 0; at least one."""
        ...

    def epoch(self, steps: int) -> float:
        """Return how many passes over the examples the first `steps` steps are."""
        ...

    def steps_in(self, epochs: float) -> int:
        """Return how many steps `epochs` passes take, rounded up; at least 1."""
        ...
