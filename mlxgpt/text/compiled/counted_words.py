"""How often each word occurs, in flat arrays: what the compiled counter makes and learns from."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class CountedWords:
    """Words in any order; one may stand in several places, and then its counts add up."""

    letters: np.ndarray
    """uint8: the bytes of all words, one word after the other."""
    lengths: np.ndarray
    """int64 (n,): bytes of each word, at least 1."""
    counts: np.ndarray
    """int64 (n,): how often it occurs, at least 1."""

    @classmethod
    def of(cls, word_counts: Mapping[bytes, int]) -> "CountedWords":
        """Return the words of a mapping; those that occur 0 times are left out."""
        words = [(word, count) for word, count in word_counts.items() if word and count > 0]
        return cls(
            np.frombuffer(bytearray().join(word for word, _ in words), np.uint8),
            np.fromiter((len(word) for word, _ in words), np.int64, len(words)),
            np.fromiter((count for _, count in words), np.int64, len(words)),
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of all occurrences together: those of the text that was counted."""
        return int(self.lengths @ self.counts)
