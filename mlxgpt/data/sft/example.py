"""A row of a fine-tuning file as the trainer needs it: ids, and which of them are to be learned."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Example:
    """`supervised[i]` says whether `ids[i]` is to be predicted from the ids before it.

    The first id has none before it and is never supervised, whatever a template marks.
    """

    ids: np.ndarray
    """(n,) int32, n >= 2."""
    supervised: np.ndarray
    """(n,) bool, true somewhere, never at 0."""

    def __post_init__(self) -> None:
        assert self.ids.dtype == np.int32
        assert self.supervised.dtype == np.bool_
        assert self.ids.ndim == 1
        assert self.ids.shape == self.supervised.shape
        assert not self.supervised[0]
        assert self.supervised.any()

    @property
    def length(self) -> int:
        """Number of ids; in a row it takes one place less, since the last id is only a target."""
        return len(self.ids)

    @property
    def num_supervised(self) -> int:
        """Number of terms that it adds to the loss."""
        return int(self.supervised.sum())
