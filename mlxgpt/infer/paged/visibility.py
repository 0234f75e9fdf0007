"""Which slots of a group's tiles each query sees: boolean masks, made once a step. No MLX."""

from collections.abc import Sequence

import numpy as np

from mlxgpt.infer.paged.groups import Group, Tile

_NOBODY = Tile(0, 0, 0, 0, 0, 0)


def visibility(
    group: Group, positions: Sequence[int], queries: int, window: int | None
) -> np.ndarray | None:
    """Return what is seen, (tiles, queries, width) bool; None if every query sees every slot.

    `positions` are those of the first query of each row, which has `queries` of them side by side.
    """
    tiles = np.array([t or _NOBODY for t in group.tiles], dtype=np.int64)
    row, first, low, high = (tiles[:, i] for i in (0, 3, 4, 5))
    query = np.asarray(positions, dtype=np.int64)[row]
    whole = (low == 0) & (high == group.width) & (first + group.width - 1 <= query)
    if window is not None:
        whole &= first > query + queries - 1 - window
    if whole.all():
        return None
    slots = np.arange(group.width)
    key = (first[:, None] + slots)[:, None, :]
    at = (query[:, None] + np.arange(queries))[:, :, None]
    seen = (key <= at) & ((slots >= low[:, None]) & (slots < high[:, None]))[:, None, :]
    return seen if window is None else seen & (key > at - window)
