"""A step's attention on a GPU: by the kernel where it can be trusted, else by the plain twin."""

from collections.abc import Sequence

import mlx.core as mx

from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.kernel_proof import trusted_kernel
from mlxgpt.infer.paged.metal_attention import MetalAttention
from mlxgpt.infer.paged.paged_kernel import MOST_SEGMENTS, KernelShape
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepAttention, StepRow, new_positions


class GPUAttention:
    """`StepAttention` that decides at its first layer, when the number of query heads is known."""

    def __init__(self, pool: Pool, rows: Sequence[StepRow]) -> None:
        self._pool, self._rows = pool, list(rows)
        self._positions = mx.array(new_positions(self._rows), dtype=mx.int32)
        self._chosen: StepAttention | None = None

    @property
    def positions(self) -> mx.array:
        return self._positions

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        if self._chosen is None:
            self._chosen = self._choose(q.shape[1] // self._pool.kv_heads)
        return self._chosen(layer, q, k, v, window)

    def _choose(self, group: int) -> StepAttention:
        pool = self._pool
        shape = KernelShape(pool.dtype, pool.head_dim, group, pool.block_size)
        kernel = trusted_kernel(shape)
        if kernel is None or len(pool.arrays) > MOST_SEGMENTS:
            return GatheredAttention(pool, self._rows)
        return MetalAttention(pool, self._rows, kernel)
