"""A step's attention on an Apple GPU: one launch of a kernel for all rows that bring few tokens.

Rows that bring many (pieces of a prompt) go through the plain twin, which gathers their keys and
values; matrix products are worth that there.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.kernel_work import kernel_work
from mlxgpt.infer.paged.paged_kernel import PagedKernel, WorkArrays
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow, new_positions, new_slots

MOST_TOKENS = 16
"""Tokens that a row brings at most if it goes through the kernel."""


class MetalAttention:
    """`StepAttention` by `kernel`, which `trusted_kernel` gives where it can be used."""

    def __init__(self, pool: Pool, rows: Sequence[StepRow], kernel: PagedKernel) -> None:
        assert kernel.shape.block_size == pool.block_size
        self._pool, self._kernel = pool, kernel
        self._positions = mx.array(new_positions(list(rows)), dtype=mx.int32)
        self._few = [row for row in rows if row.count <= MOST_TOKENS]
        many = [row for row in rows if row.count > MOST_TOKENS]
        self._places = pool.places(new_slots(self._few, pool.block_size))
        self._gathered = GatheredAttention(pool, many) if many else None
        # Which tokens belong to rows of few, which to the others, and how they come together again.
        counts = np.array([row.count for row in rows])
        of_few = np.repeat(counts <= MOST_TOKENS, counts)
        tokens = np.flatnonzero(of_few), np.flatnonzero(~of_few)
        self._tokens_of_few, self._tokens_of_many = (mx.array(t.astype(np.int32)) for t in tokens)
        self._order = mx.array(np.argsort(np.concatenate(tokens)).astype(np.int32))
        self._work: dict[int | None, WorkArrays] = {}

    @property
    def positions(self) -> mx.array:
        return self._positions

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        if self._gathered is None:
            self._pool.write(layer, self._places, k, v)
            return self._by_kernel(layer, q, window)
        if not self._few:
            return self._gathered(layer, q, k, v, window)
        few_q, few_k, few_v = (x[self._tokens_of_few] for x in (q, k, v))
        many_q, many_k, many_v = (x[self._tokens_of_many] for x in (q, k, v))
        # All that is written comes before all that is read: an array that waits to be read would be
        # copied by the next write to it.
        self._pool.write(layer, self._places, few_k, few_v)
        of_many = self._gathered(layer, many_q, many_k, many_v, window)
        return mx.concatenate([self._by_kernel(layer, few_q, window), of_many])[self._order]

    def _by_kernel(self, layer: int, q: mx.array, window: int | None) -> mx.array:
        if window not in self._work:
            shape = self._kernel.shape
            work = kernel_work(
                self._few,
                window=window,
                block_size=shape.block_size,
                group=shape.group,
                kv_heads=self._pool.kv_heads,
                queries=shape.queries,
            )
            self._work[window] = WorkArrays(work)
        segments = [layers[layer] for layers in self._pool.arrays]
        return self._kernel(q, segments, self._work[window])
