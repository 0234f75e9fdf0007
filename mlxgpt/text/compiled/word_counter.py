"""Stretches of text -> how often each word occurs, by the kernels; the twin of `word_counts`."""

from typing import final

import numpy as np

from mlxgpt.text.compiled.count_kernel import (
    LENGTH_BITS,
    LETTERS,
    NEED,
    NEXT,
    START,
    WORDS,
    count_words,
)
from mlxgpt.text.compiled.counted_words import CountedWords
from mlxgpt.text.compiled.loads import PADDING, pad
from mlxgpt.text.compiled.split_rules import SplitRule
from mlxgpt.text.compiled.splitter import word_ends
from mlxgpt.text.compiled.word_table import SLOT, enlarged, new_table, rehash

_SLOTS = 1 << 15
_ROOM = 1 << 14
"""Words that are split before they are counted."""
_ONE = np.ones(1, np.int64)


@final
class WordCounter:
    """Counts the words of many stretches; memory grows with the number of different words.

    One thread at a time may use it; of several counters, `include` makes one.
    """

    def __init__(self, rule: SplitRule, *, slots: int = _SLOTS) -> None:
        """Begin with a table of that many slots, a power of two."""
        self._rule = rule
        self._table = new_table(slots)
        self._kept = np.empty(4 * slots, np.uint8)
        self._lengths = np.empty(slots // 2, np.int64)
        self._state = np.zeros(5, np.int64)

    def add(self, stretch: str) -> None:
        """Count the words of a text without lone surrogates."""
        data = stretch.encode("utf-8")
        padded = pad(data)
        self._state[START] = 0
        for ends in word_ends(padded, len(data), self._rule, _ROOM):
            self._count(padded, ends, _ONE)

    def include(self, words: CountedWords) -> None:
        """Add what another counter has counted."""
        padded = pad(words.letters.tobytes())
        self._state[START] = 0
        self._count(padded, np.cumsum(words.lengths), words.counts)

    def words(self) -> CountedWords:
        """Return what was counted so far, in the order in which the words were met."""
        n_words, n_letters = int(self._state[WORDS]), int(self._state[LETTERS])
        slots = self._table.reshape(-1, SLOT)
        slots = slots[slots[:, 2] != 0]
        counts = np.ones(n_words, np.int64)
        counts[(slots[:, 2] >> LENGTH_BITS).astype(np.int64)] = slots[:, 3].astype(np.int64)
        return CountedWords(self._kept[:n_letters].copy(), self._lengths[:n_words].copy(), counts)

    def _count(self, padded: np.ndarray, ends: np.ndarray, amounts: np.ndarray) -> None:
        self._state[NEXT] = 0
        while not count_words(
            padded, ends, amounts, self._table, self._kept, self._lengths, self._state
        ):
            self._enlarge()

    def _enlarge(self) -> None:
        n_words = int(self._state[WORDS])
        letters = int(self._state[LETTERS] + self._state[NEED]) + PADDING
        if letters > self._kept.size:
            self._kept = enlarged(self._kept, 2 * letters)
        if n_words >= self._lengths.size:
            self._lengths = enlarged(self._lengths, 2 * n_words + 1)
        if 2 * SLOT * n_words >= self._table.size:
            self._table = rehash(self._table, 2 * self._table.size // SLOT)
