"""Attention over a pool, one text after the other, keys and values copied out: slow and plain.

It works on any device and in any precision, and is what faster ways are held against.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow, new_positions, new_slots


class GatheredAttention:
    """`StepAttention` by MLX's own attention over copies."""

    def __init__(self, pool: Pool, rows: Sequence[StepRow]) -> None:
        self._pool, self._rows = pool, list(rows)
        self._positions = mx.array(new_positions(self._rows), dtype=mx.int32)
        self._places = pool.places(new_slots(self._rows, pool.block_size))

    @property
    def positions(self) -> mx.array:
        return self._positions

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        self._pool.write(layer, self._places, k, v)
        outputs, at = [], 0
        for row in self._rows:
            outputs.append(self._row(layer, row, q[at : at + row.count], window))
            at += row.count
        return mx.concatenate(outputs, axis=0)

    def _row(self, layer: int, row: StepRow, q: mx.array, window: int | None) -> mx.array:
        table, size = row.table, self._pool.block_size
        begin = table.dropped if window is None else max(table.dropped, row.position - window + 1)
        places = [divmod(p - table.dropped, size) for p in range(begin, table.length)]
        slots = [table.blocks[block] * size + place for block, place in places]
        k, v = self._pool.read(layer, slots)
        query = mx.arange(row.position, table.length)[:, None]
        key = mx.arange(begin, table.length)[None, :]
        seen = key <= query
        if window is not None:
            seen &= key > query - window
        heads = q.swapaxes(0, 1)[None]
        scale = q.shape[-1] ** -0.5
        out = mx.fast.scaled_dot_product_attention(heads, k[None], v[None], scale=scale, mask=seen)
        return out[0].swapaxes(0, 1)
