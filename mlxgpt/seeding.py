"""Randomness as a function: (seed, purpose, index) -> a numpy generator or an MLX key.

Nothing here keeps a state. Whoever asks twice gets the same numbers, on any process, in any order;
that is why a resumed run, another number of workers or a neighbour in a batch changes nothing.
"""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import mlx.core as mx


def derive(seed: int, purpose: str, *index: int) -> int:
    """Return a 128-bit number that depends on all arguments and on nothing else.

    `purpose` names the use ("batch-order", "dropout"), so that two uses of one seed share nothing.
    """
    text = "/".join([str(int(seed)), purpose, *(str(int(i)) for i in index)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """Return a numpy generator (Philox, counter based) for this seed, purpose and index."""
    return np.random.Generator(np.random.Philox(key=derive(seed, purpose, *index)))


def key(seed: int, purpose: str, *index: int) -> "mx.array":
    """Return an `mx.random` key, uint32 (2,), for this seed, purpose and index."""
    import mlx.core as mx  # heavy, and text/ must stay free of it

    return mx.random.key(derive(seed, purpose, *index) & (2**64 - 1))
