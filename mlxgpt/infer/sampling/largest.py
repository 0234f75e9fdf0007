"""Rows of many numbers -> their k largest, without sorting all of them."""

from math import isqrt

import mlx.core as mx

_WIDEST = 256
"""Numbers in a group at most."""
_SORTED = 4
"""All numbers are sorted where the k largest are more than a quarter of them."""


def k_largest(x: mx.array, k: int) -> mx.array:
    """Return the k largest of rows (R, V), the largest first, (R, k); as `k_largest_plain`.

    Numbers are put into groups. The k groups with the largest maxima hold the k largest numbers:
    whatever lies in another group is not above any of these k maxima. Only those are sorted.
    """
    rows, size = x.shape
    if k * _SORTED > size:
        return k_largest_plain(x, k)
    width = min(isqrt(size // k), _WIDEST)
    # A width that divides V, if there is one nearby, needs no padding.
    width = next((w for w in range(width, width // 2, -1) if size % w == 0), width)
    if missing := -size % width:
        x = mx.pad(x, [(0, 0), (0, missing)], constant_values=-float("inf"))
    groups = x.reshape(rows, width, -1)  # a group goes down a column: its maximum is faster so
    best = mx.argpartition(-groups.max(axis=1), k - 1, axis=-1)[:, :k]
    few = mx.take_along_axis(groups, best[:, None, :], axis=2).reshape(rows, -1)
    return -mx.sort(mx.partition(-few, k - 1, axis=-1)[:, :k], axis=-1)


def k_largest_plain(x: mx.array, k: int) -> mx.array:
    """Do what `k_largest` does, by sorting whole rows."""
    return -mx.sort(-x, axis=-1)[:, :k]
