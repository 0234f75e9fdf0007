"""Bytes of a padded text -> numbers: one byte, or eight at once and questions about all of them."""

from typing import Any

import numpy as np
from numba.cpython.unsafe import numbers

from mlxgpt.text.compiled.jit import helper

U = np.uint64
_trailing_zeros: Any = numbers.trailing_zeros  # of 0 it is 64

PADDING = 16
"""Zero bytes behind a text, so that loads from any of its positions stay inside the buffer."""

# 2**64 divided by the golden ratio, and the odd constants of splitmix64's finalizer.
GOLDEN, MIX_1, MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)

_TOP_BITS, _LOW_BITS = U(0x8080808080808080), U(0x7F7F7F7F7F7F7F7F)
_SPACES = U(0x2020202020202020)  # eight spaces; and the bit that makes capital letters small
_FROM_A, _PAST_Z = U(0x1F1F1F1F1F1F1F1F), U(0x0505050505050505)  # 'a' + 0x1F = 'z' + 1 + 5 = 0x80


def pad(data: bytes) -> np.ndarray:
    """Return `data` with its padding as a new array, uint8 (len(data) + PADDING,).

    It can be written to: for numba an array that cannot is another type, and all is compiled twice.
    """
    padded = np.empty(len(data) + PADDING, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    padded[len(data) :] = 0
    return padded


@helper
def byte_at(text, i):
    """Return byte `i` as int64."""
    return np.int64(text[U(i)])


@helper
def load64(text, i):
    """Return eight bytes from `i` on, the first one lowest. LLVM makes it one load."""
    i = U(i)
    return (
        U(text[i])
        | U(text[i + U(1)]) << U(8)
        | U(text[i + U(2)]) << U(16)
        | U(text[i + U(3)]) << U(24)
        | U(text[i + U(4)]) << U(32)
        | U(text[i + U(5)]) << U(40)
        | U(text[i + U(6)]) << U(48)
        | U(text[i + U(7)]) << U(56)
    )


@helper
def leading_letters(eight):
    """Return how many of eight bytes, from the first on, are ASCII letters."""
    small = (eight | _SPACES) & _LOW_BITS
    others = ~((small + _FROM_A) & ~(small + _PAST_Z) & ~eight) & _TOP_BITS
    return np.int64(_trailing_zeros(others) >> U(3))  # none: 64 >> 3 = 8


@helper
def leading_spaces(eight):
    """Return how many of eight bytes, from the first on, are spaces."""
    difference = eight ^ _SPACES
    others = (((difference & _LOW_BITS) + _LOW_BITS) | difference) & _TOP_BITS
    return np.int64(_trailing_zeros(others) >> U(3))
