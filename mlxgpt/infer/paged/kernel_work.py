"""The rows of a step -> the list of work that the paged attention kernel goes through.

Everything is int32. A work item is one threadgroup's part for each key/value head: a few queries of
one text and a range of its positions. The block tables follow the items in the same array.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlxgpt.infer.paged.step_attention import StepRow

ITEM = 11
"""Numbers of a work item, in the order in which paged_attention.metal reads them."""
FEWEST_POSITIONS = 256
"""A text is not cut into parts of fewer positions: merging them would cost more than it brings."""
ENOUGH_GROUPS = 256
"""Threadgroups from which on a GPU is thought busy (unmeasured); below, long texts are cut."""


@dataclass(frozen=True)
class KernelWork:
    """What the kernel computes in one step for all layers of one window."""

    plan: np.ndarray
    """(items * ITEM + block tables,) int32."""
    items: int
    """Number of work items."""
    first_parts: np.ndarray
    """(N + 1,) int32: token n is computed in the parts [first_parts[n], first_parts[n + 1])."""

    @property
    def parts(self) -> int:
        return int(self.first_parts[-1])

    @property
    def split(self) -> bool:
        """Whether any token is computed in several parts, which then have to be merged."""
        return self.parts >= len(self.first_parts)


def kernel_work(
    rows: Sequence[StepRow],
    *,
    window: int | None,
    block_size: int,
    group: int,
    kv_heads: int,
    queries: int,
    fewest: int = FEWEST_POSITIONS,
    enough: int = ENOUGH_GROUPS,
) -> KernelWork:
    """Lay out the work for `rows`, whose tokens lie side by side.

    `group` query heads share a key/value head, of which there are `kv_heads`; an item takes
    `queries` queries. Where that makes fewer than `enough` threadgroups of equal length, long
    ranges are cut into parts of `fewest` positions or more, which have to be merged.
    """
    tiles = [list(_tiles(row, window, group, queries)) for row in rows]
    spans = sum(end - begin for each in tiles for _, begin, end in each) * kv_heads
    longest = -(-max(fewest, -(-spans // enough)) // block_size) * block_size
    items: list[list[int]] = []
    tables: list[int] = []
    first_parts = [0]
    first_row, first_table = 0, sum(len(each) * _parts(each, longest) for each in tiles) * ITEM
    for row, each in zip(rows, tiles, strict=True):
        table, parts = row.table, _parts(each, longest)
        assert table.length - table.dropped <= len(table.blocks) * block_size, "a block is missing"
        for query, begin, end in each:
            for part in range(parts):
                first = begin + part * longest
                text = [first_row, row.position, query, row.count * group]
                span = [min(first, end), min(first + longest, end), window or 0, table.dropped]
                where = [first_table + len(tables), first_parts[-1] + part, parts]
                items.append(text + span + where)
        tables += table.blocks
        first_parts += [first_parts[-1] + parts * (i + 1) for i in range(row.count)]
        first_row += row.count
    plan = np.concatenate([np.array(items, np.int32).reshape(-1), np.array(tables, np.int32)])
    return KernelWork(plan, len(items), np.array(first_parts, np.int32))


def _tiles(
    row: StepRow, window: int | None, group: int, queries: int
) -> list[tuple[int, int, int]]:
    """Return (first query, begin, end) of each tile: the positions that any of its queries sees."""
    tiles = []
    for query in range(0, row.count * group, queries):
        last = min(query + queries, row.count * group) - 1
        begin = 0 if window is None else row.position + query // group + 1 - window
        tiles.append((query, max(begin, row.table.dropped), row.position + last // group + 1))
    return tiles


def _parts(tiles: list[tuple[int, int, int]], longest: int) -> int:
    """Return into how many parts of at most `longest` positions the tiles of one text are cut."""
    return max(-(-(end - begin) // longest) for _, begin, end in tiles)
