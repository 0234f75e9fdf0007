"""Rows of many numbers -> sums and running sums that float32 does not spoil.

Numbers are added in groups, then the sums of groups, and so on: of 50,000 probabilities added one
after the other the tail can be off by 1e-3. What comes out for a row does not depend on the others.
"""

import mlx.core as mx

PIECE = 256
"""Numbers in a piece."""
_GROUP = 16
"""Numbers that are added one after the other; in running sums twice as many, to save steps."""


def row_sums(x: mx.array) -> mx.array:
    """Return the sums of rows (R, n), (R, 1)."""
    while x.shape[1] > _GROUP:
        x = _padded(x, _GROUP)
        # A group goes down a column of the table, which is the faster way to add.
        x = x.reshape(x.shape[0], _GROUP, -1).sum(axis=1)
    return x.sum(axis=-1, keepdims=True)


def pieces(x: mx.array) -> tuple[mx.array, mx.array]:
    """Return rows (R, n) cut into pieces (R, C, 256), zeros at the end, and their sums (R, C)."""
    cut = _padded(x, PIECE).reshape(x.shape[0], -1, PIECE)
    return cut, cut.reshape(*cut.shape[:2], -1, _GROUP).sum(axis=2).sum(axis=-1)


def running_sums(x: mx.array) -> mx.array:
    """Return for each number of rows (R, n) the sum up to it, itself included.

    Each depends on what stands before it only, not on how much follows.
    """
    rows, count = x.shape
    group = 2 * _GROUP
    if count <= group:
        return mx.cumsum(x, axis=-1)
    within = mx.cumsum(_padded(x, group).reshape(rows, -1, group), axis=-1)
    before = mx.pad(running_sums(within[..., -1])[:, :-1], [(0, 0), (1, 0)])
    return (within + before[..., None]).reshape(rows, -1)[:, :count]


def _padded(x: mx.array, multiple: int) -> mx.array:
    missing = -x.shape[1] % multiple
    return mx.pad(x, [(0, 0), (0, missing)]) if missing else x
