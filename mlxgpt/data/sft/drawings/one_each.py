"""`none`: each pass takes every example once, in a new order, one example a row."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from mlxgpt.data.sft.drawing import Row
from mlxgpt.data.sft.drawings.passes import Passes
from mlxgpt.seeding import generator


class OneEach:
    """Every example exactly once a pass; the last step of a pass has the rows that are left."""

    def __init__(self, num_examples: int, rows_per_step: int, seed: int) -> None:
        self._passes = Passes(num_examples, rows_per_step)
        self._seed = seed
        self._order = lru_cache(maxsize=2)(self._draw_order)

    @property
    def shares(self) -> np.ndarray:
        return np.full(self._passes.items, 1 / self._passes.items)

    def rows(self, step: int) -> Sequence[Row]:
        which, places = self._passes.at(step)
        return [(index,) for index in self._order(which)[places].tolist()]

    def epoch(self, steps: int) -> float:
        return self._passes.done(steps)

    def steps_in(self, epochs: float) -> int:
        return self._passes.steps_in(epochs)

    def _draw_order(self, which: int) -> np.ndarray:
        return generator(self._seed, "examples-order", which).permutation(self._passes.items)
