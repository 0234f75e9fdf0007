"""The kernel and its plain twin behind the seam, over a real pool, layer after layer."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
import pytest
from metal_shim.shim_kernel import AVAILABLE, ShimKernel

from mlxgpt import seeding
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.metal_attention import MOST_TOKENS, MetalAttention
from mlxgpt.infer.paged.paged_kernel import KernelShape, PagedKernel
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow

KV_HEADS, GROUP, D, BLOCK, LAYERS = 2, 3, 64, 16, 2
by_shim = pytest.mark.skipif(not AVAILABLE, reason="needs g++ on Linux")


def filled_pool(dtype: mx.Dtype, segments: Sequence[int]) -> Pool:
    """A pool whose every slot holds something."""
    pool = Pool(LAYERS, KV_HEADS, D, dtype, BLOCK)
    pool.grow(segments)
    slots = sum(segments) * BLOCK
    for layer in range(LAYERS):
        k, v = (noise(("pool", layer, i), (slots, KV_HEADS, D), dtype) for i in (0, 1))
        pool.write(layer, pool.places(range(slots)), k, v)
    mx.eval(pool.arrays)
    return pool


def noise(name: tuple, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    numbers = seeding.generator(0, str(name)).normal(size=shape)
    return mx.array(numbers.astype(np.float32)).astype(dtype)


def rows_of(lengths: Sequence[tuple[int, int]], blocks: int) -> list[StepRow]:
    ids = iter(seeding.generator(0, "ids").permutation(blocks).tolist())
    return [
        StepRow(BlockTable([next(ids) for _ in range(-(-n // BLOCK))], n), new)
        for n, new in lengths
    ]


def compare(
    lengths: Sequence[tuple[int, int]], make: type | None, dtype: mx.Dtype = mx.float32
) -> None:
    segments = [9, 30]
    rows = rows_of(lengths, sum(segments))
    kernel = PagedKernel(KernelShape(dtype, D, GROUP, BLOCK), make)
    tokens = sum(row.count for row in rows)
    pools = [filled_pool(dtype, segments) for _ in range(2)]
    attentions = MetalAttention(pools[0], rows, kernel), GatheredAttention(pools[1], rows)
    assert np.array_equal(*(np.array(a.positions) for a in attentions))
    for layer, window in ((0, None), (1, 20), (0, 20)):
        q = noise(("q", layer), (tokens, KV_HEADS * GROUP, D), dtype)
        k, v = (noise((i, layer), (tokens, KV_HEADS, D), dtype) for i in "kv")
        got, wanted = (a(layer, q, k, v, window).astype(mx.float32) for a in attentions)
        allowed = 2e-6 if dtype == mx.float32 else 2e-2
        assert np.allclose(np.array(got), np.array(wanted), atol=allowed, rtol=0)
        for ours, theirs in zip(pools[0].arrays, pools[1].arrays, strict=True):
            assert mx.array_equal(ours[layer], theirs[layer])


MIXED = {
    "few tokens each": [(40, 1), (7, 7), (100, 3), (1, 1)],
    "at the edge": [(MOST_TOKENS, MOST_TOKENS), (MOST_TOKENS + 1, MOST_TOKENS + 1)],
    "pieces of prompts between": [(50, 30), (40, 1), (70, 20), (90, 5), (33, 33)],
    "pieces of prompts only": [(50, 30), (17, 17)],
}


@by_shim
@pytest.mark.parametrize("lengths", MIXED.values(), ids=MIXED)
def test_it_gives_what_its_plain_twin_gives(lengths: list[tuple[int, int]]) -> None:
    compare(lengths, ShimKernel)


@by_shim
def test_all_layers_and_rows_share_one_work_list_and_one_launch() -> None:
    kernels: list[ShimKernel] = []

    def make(**arguments: str | list[str]) -> ShimKernel:
        kernels.append(ShimKernel(**arguments))  # pyright: ignore[reportArgumentType]
        return kernels[-1]

    rows = rows_of(MIXED["few tokens each"], 39)
    pool = filled_pool(mx.float32, [39])
    kernel = PagedKernel(KernelShape(mx.float32, D, GROUP, BLOCK), make)
    attention = MetalAttention(pool, rows, kernel)
    for layer in range(LAYERS):
        q, k, v = (noise((h,), (12, h, D), mx.float32) for h in (6, 2, 2))
        attention(layer, q, k, v, None)
    assert [k.launches for k in kernels] == [LAYERS]
    assert len(attention._work) == 1


@by_shim
def test_nothing_that_was_read_keeps_the_pool_from_being_written_in_place() -> None:
    lengths = MIXED["pieces of prompts between"]
    pool, rows = filled_pool(mx.float32, [39]), rows_of(lengths, 39)
    kernel = PagedKernel(KernelShape(mx.float32, D, GROUP, BLOCK), ShimKernel)
    attention = MetalAttention(pool, rows, kernel)
    tokens = sum(new for _, new in lengths)
    q, k, v = (noise((h,), (tokens, h, D), mx.float32) for h in (6, 2, 2))
    mx.eval(q, k, v)
    before = np.array(pool.arrays[0][0], copy=False).__array_interface__["data"]
    mx.eval(attention(0, q, k, v, None))
    assert np.array(pool.arrays[0][0], copy=False).__array_interface__["data"] == before


@pytest.mark.metal
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
@pytest.mark.parametrize("lengths", MIXED.values(), ids=MIXED)
def test_metal_gives_what_its_plain_twin_gives(
    lengths: list[tuple[int, int]], dtype: mx.Dtype
) -> None:
    compare(lengths, None, dtype)
