"""The random stream of BPE-dropout in kernels: bit for bit that of `bpe/dropout.py`."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mlxgpt.text.bpe import dropout
from mlxgpt.text.compiled.jit import helper
from mlxgpt.text.compiled.loads import MIX_1, MIX_2, U

LONGEST_GAP = dropout.LONGEST_GAP
POSITION_STEP, DRAW_STEP = U(dropout.POSITION_STEP), U(dropout.DRAW_STEP)


class Draws(NamedTuple):
    """A `Dropout` as kernels take it."""

    thresholds: np.ndarray
    """uint64 (LONGEST_GAP + 1,); empty: no dropout."""
    guesses: np.ndarray
    """uint8 (256,): top byte of a draw -> a lower bound of its gap."""


@lru_cache(maxsize=64)
def draws_of(p: float) -> Draws:
    """Return the tables of a rate; those of 0 are empty."""
    if p == 0:
        return Draws(np.zeros(0, np.uint64), np.zeros(256, np.uint8))
    thresholds = np.array(dropout.Dropout(p, 0).thresholds, np.uint64)
    largest = (np.arange(256, dtype=np.uint64) << U(56)) | U(2**56 - 1)
    # thresholds fall, t[0] is never reached from above
    guesses = (largest[:, None] < thresholds[None, 1:]).sum(axis=1)
    return Draws(thresholds, guesses.astype(np.uint8))


@helper
def draw(counter, k):
    """Return draw `k` of the word whose counter is base + position * POSITION_STEP."""
    z = counter + U(k) * DRAW_STEP
    z = (z ^ (z >> U(30))) * MIX_1
    z = (z ^ (z >> U(27))) * MIX_2
    return z ^ (z >> U(31))


@helper
def gap_of(u, draws):
    """Return the gap of a draw, 0..LONGEST_GAP."""
    gap = np.int64(draws.guesses[u >> U(56)])
    while gap < LONGEST_GAP and u < draws.thresholds[U(gap + 1)]:
        gap += 1
    return gap
