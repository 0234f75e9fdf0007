"""`sequence`: several whole examples a row, packed anew for each pass by best fit decreasing."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from mlxgpt.data.sft.drawing import Row
from mlxgpt.data.sft.drawings.passes import Passes
from mlxgpt.data.sft.packing import best_fit_decreasing
from mlxgpt.seeding import generator


class Packed:
    """Every example exactly once a pass; `rows_per_step` packs a step, the last step has the rest.

    How long the examples of each pack are is the same in all passes, and so is the number of
    packs: that follows from the lengths alone. Which of the examples of one length goes where is
    drawn for each pass, and so is the order of packs, and of examples in a pack.
    """

    def __init__(self, lengths: np.ndarray, rows_per_step: int, capacity: int, seed: int) -> None:
        """`lengths` (N,): ids, of which an example takes one place less. Raises `ConfigError`."""
        self._lengths = lengths
        self._seed = seed
        pack = best_fit_decreasing(lengths - 1, capacity)
        self._slots = np.argsort(-lengths, kind="stable")  # the longest first
        self._pack_of_slot = pack[self._slots]
        self._sizes = np.bincount(pack)
        self._passes = Passes(len(self._sizes), rows_per_step)
        self._filling = lru_cache(maxsize=2)(self._fill)

    @property
    def num_packs(self) -> int:
        """Rows of one pass."""
        return self._passes.items

    @property
    def shares(self) -> np.ndarray:
        return np.full(len(self._lengths), 1 / len(self._lengths))

    def rows(self, step: int) -> Sequence[Row]:
        which, places = self._passes.at(step)
        examples, edges = self._filling(which)
        cut = edges[places.start : places.stop + 1].tolist()
        inside = examples[cut[0] : cut[-1]].tolist()
        return [tuple(inside[a - cut[0] : b - cut[0]]) for a, b in pairwise(cut)]

    def epoch(self, steps: int) -> float:
        """As for any drawing; inside of a pass, rows are counted, not the examples in them."""
        return self._passes.done(steps)

    def steps_in(self, epochs: float) -> int:
        return self._passes.steps_in(epochs)

    def _fill(self, which: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the examples of pass `which`, row after row, and where each row begins."""
        count = len(self._lengths)
        drawn = generator(self._seed, "packs-examples", which).permutation(count)
        # Equal lengths stand together in the slots, now in the order in which they were drawn.
        examples = drawn[np.argsort(-self._lengths[drawn], kind="stable")]
        place = generator(self._seed, "packs-order", which).permutation(len(self._sizes))
        mixed = generator(self._seed, "packs-inside", which).permutation(count)
        by_pack = mixed[np.argsort(place[self._pack_of_slot[mixed]], kind="stable")]
        sizes = np.empty_like(self._sizes)
        sizes[place] = self._sizes
        return examples[by_pack], np.concatenate([[0], np.cumsum(sizes)])
