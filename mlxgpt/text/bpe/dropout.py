"""(p, seed) -> which merges of a word are dropped: the same bits in plain and in compiled code.

BPE-dropout (Provilkov et al. 2020, algorithm 1) drops every possible merge with probability p, anew
at each step, and applies the best that is left; a word ends when all are dropped. Looking at the
candidates from the best one on (lowest rank, then leftmost) and accepting each with probability
1 - p is the same law, because the fate of those behind the accepted one does not matter. So all the
randomness of a word is a list of gaps: how many candidates are accepted between two drops.

Gaps are geometric. Draw k = 0, 1, ... of the word that begins at byte `position` is one 64-bit
number u, a hash of (seed, position, k). With t[g] = (1 - p)**g in 64-bit fixed point, the gap is
the largest g <= LONGEST_GAP with u < t[g]; a draw that reaches LONGEST_GAP stands for that many
accepted candidates without a drop after them, and the next draw goes on. Everything is integer
arithmetic, so it is equal on every machine.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from numbers import Real
from operator import index

import numpy as np

from mlxgpt.errors import TokenizerError

LONGEST_GAP = 64
"""Accepted candidates that one draw stands for at most."""

# Odd constants of splitmix64 (Steele et al. 2014) and of its finalizer.
POSITION_STEP = 0x9E3779B97F4A7C15
DRAW_STEP = 0xD1B54A32D192ED03
MIX_1, MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB

_MASK = 2**64 - 1


@dataclass(frozen=True)
class Dropout:
    """BPE-dropout for one text. Raises `TokenizerError` for a `p` outside of [0, 1].

    A seed is any integer, also one of NumPy.
    """

    p: float
    """How likely a possible merge is dropped: 0 never, 1 always (only bytes or characters)."""
    seed: int
    """Of the text: take another one for each document and epoch."""

    def __post_init__(self) -> None:
        check_rate(self.p)
        try:
            index(self.seed)
        except TypeError:
            raise TokenizerError(
                f"the seed of BPE-dropout must be an integer, got {self.seed!r}"
            ) from None

    @cached_property
    def base(self) -> int:
        """The hashed 64-bit seed; the counter of draw k at byte i is base + i P + k D mod 2**64."""
        seed = index(self.seed)
        if not 0 <= seed <= _MASK:  # all of it counts
            digest = hashlib.blake2b(str(seed).encode(), digest_size=8).digest()
            seed = int.from_bytes(digest, "little")
        return mix(seed + POSITION_STEP)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """t[g] for g = 0..LONGEST_GAP: the probability that a gap is g or more, times 2**64."""
        return _thresholds(float(self.p))

    def draw(self, position: int, k: int) -> int:
        """Return draw `k` of the word that begins at byte `position`, uniform in 0..2**64-1."""
        return mix(self.base + position * POSITION_STEP + k * DRAW_STEP)

    def first_draws(self, positions: np.ndarray) -> np.ndarray:
        """Return draw 0 for many positions at once: int64 (n,) -> uint64 (n,)."""
        z = np.uint64(self.base) + positions.astype(np.uint64) * np.uint64(POSITION_STEP)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
        return z ^ (z >> np.uint64(31))


def check_rate(p: float) -> None:
    """Raise `TokenizerError` unless `p` is a number from 0 to 1."""
    if isinstance(p, bool) or not isinstance(p, Real) or not 0 <= float(p) <= 1:  # not NaN either
        raise TokenizerError(f"the BPE-dropout rate must be between 0 and 1, got {p!r}")


def mix(z: int) -> int:
    """Return the hash of a 64-bit counter (the finalizer of splitmix64)."""
    z &= _MASK
    z = ((z ^ (z >> 30)) * MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * MIX_2) & _MASK
    return z ^ (z >> 31)


@lru_cache(maxsize=64)
def _thresholds(p: float) -> tuple[int, ...]:
    keep = int((1.0 - p) * 2**64)
    powers = [2**64]
    for _ in range(LONGEST_GAP):
        powers.append(powers[-1] * keep >> 64)
    # 2**64 itself does not fit; one draw in 2**64 then counts as below.
    return tuple(min(power, _MASK) for power in powers)
