"""The kernel's very body, compiled for this CPU, against MLX's attention over random pools."""

from dataclasses import dataclass
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from metal_shim.shim_kernel import AVAILABLE, KernelFault, ShimKernel

from mlxgpt import seeding
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.kernel_proof import ALLOWED
from mlxgpt.infer.paged.kernel_work import kernel_work
from mlxgpt.infer.paged.paged_kernel import KernelShape, PagedKernel, WorkArrays
from mlxgpt.infer.paged.step_attention import StepRow

by_shim = pytest.mark.skipif(not AVAILABLE, reason="needs g++ on Linux")


@dataclass(frozen=True)
class Setup:
    shape: KernelShape
    kv_heads: int
    segments: int


SETUPS = {
    "float32, heads of 64 in 3s": Setup(KernelShape(mx.float32, 64, 3, 16), 2, 1),
    "one number a lane, 8 segments": Setup(KernelShape(mx.float32, 32, 1, 4), 2, 8),
    "blocks of 12, heads of 96": Setup(KernelShape(mx.float32, 96, 2, 12), 1, 2),
    "heads of 256, blocks of 32": Setup(KernelShape(mx.float32, 256, 5, 32), 1, 4),
    "float16": Setup(KernelShape(mx.float16, 128, 4, 16), 2, 3),
    "bfloat16, one kv head": Setup(KernelShape(mx.bfloat16, 64, 8, 8), 1, 2),
}


class Case:
    """A pool of several arrays, texts that lie in it here and there, and their queries. Whatever
    holds no token is NaN."""

    def __init__(
        self, setup: Setup, seed: int, lengths: list[tuple[int, int]] | None = None
    ) -> None:
        self.setup, self.random = setup, seeding.generator(seed, "test/paged-kernel")
        shape, random, size = setup.shape, self.random, setup.shape.block_size
        if lengths is None:
            texts, longest = int(random.integers(1, 6)), int(random.choice([3, 40, 150]))
            news = [int(n) for n in random.choice([1, 1, 1, 2, 5, 16], texts)]
            lengths = [(n + int(random.integers(longest)), n) for n in news]
        self.window = None if random.random() < 0.5 else int(random.integers(1, 60))
        total = sum(-(-n // size) for n, _ in lengths) + setup.segments + int(random.integers(4))
        ids = iter(random.permutation(total).tolist())
        self.rows = []
        for length, new in lengths:
            unseen = 0 if self.window is None else max(0, length - new + 1 - self.window) // size
            dropped = size * int(random.integers(unseen + 1))
            blocks = [next(ids) for _ in range(-(-(length - dropped) // size))]
            self.rows.append(StepRow(BlockTable(blocks, length, dropped), new))
        heads, d = 2 * setup.kv_heads, shape.head_dim
        values = np.full((heads, total * size, d), np.nan)
        for row in self.rows:
            values[:, self.slots(row)] = random.normal(size=(heads, len(self.slots(row)), d))
        self.pool = mx.array(values.astype(np.float32)).astype(shape.dtype)
        cuts = random.choice(total - 1, setup.segments - 1, replace=False) + 1
        edges = [0, *sorted(cuts.tolist()), total]
        self.segments = [self.pool[:, a * size : b * size] for a, b in pairwise(edges)]
        q = random.normal(size=(sum(n for _, n in lengths), setup.kv_heads * shape.group, d))
        self.q = mx.array(q.astype(np.float32)).astype(shape.dtype)
        mx.eval(self.segments, self.q)

    def slots(self, row: StepRow) -> np.ndarray:
        """Where the tokens lie that a text still has."""
        size = self.setup.shape.block_size
        all_slots = np.array(row.table.blocks)[:, None] * size + np.arange(size)
        return all_slots.reshape(-1)[: row.table.length - row.table.dropped]

    def by_kernel(self, kernel: PagedKernel, *, fewest: int = 256) -> np.ndarray:
        work = kernel_work(
            self.rows,
            window=self.window,
            block_size=self.setup.shape.block_size,
            group=self.setup.shape.group,
            kv_heads=self.setup.kv_heads,
            queries=self.setup.shape.queries,
            fewest=fewest,
        )
        return np.array(kernel(self.q, self.segments, WorkArrays(work)).astype(mx.float32))

    def by_mlx(self) -> np.ndarray:
        """Each token alone, over copies of exactly what it sees, in float32."""
        out, kv_heads, pool = [], self.setup.kv_heads, self.pool.astype(mx.float32)
        for row in self.rows:
            slots = self.slots(row)
            for position in range(row.position, row.table.length):
                first = 0 if self.window is None else max(0, position + 1 - self.window)
                seen = slots[first - row.table.dropped : position + 1 - row.table.dropped]
                both = pool[:, mx.array(seen)][None]
                q = self.q[len(out)].astype(mx.float32)[None, :, None]
                k, v = both[:, :kv_heads], both[:, kv_heads:]
                scale = q.shape[-1] ** -0.5
                out.append(mx.fast.scaled_dot_product_attention(q, k, v, scale=scale)[0, :, 0])
        return np.array(mx.stack(out))


def assert_close(got: np.ndarray, wanted: np.ndarray, dtype: mx.Dtype) -> None:
    difference = np.abs(got - wanted) / np.maximum(1, np.abs(wanted))
    assert float(difference.max()) <= ALLOWED[dtype]


@pytest.fixture(scope="module", params=SETUPS, ids=lambda name: name.replace(" ", "-"))
def setup(request: pytest.FixtureRequest) -> Setup:
    return SETUPS[request.param]


@pytest.fixture(scope="module")
def kernel(setup: Setup) -> PagedKernel:
    return PagedKernel(setup.shape, ShimKernel)


@by_shim
def test_it_gives_what_attention_gives(setup: Setup, kernel: PagedKernel) -> None:
    for seed in range(12):
        case = Case(setup, seed)
        assert_close(case.by_kernel(kernel), case.by_mlx(), setup.shape.dtype)


@by_shim
def test_long_texts_are_cut_into_parts_and_merged(setup: Setup, kernel: PagedKernel) -> None:
    for seed in range(100, 106):
        case = Case(setup, seed, lengths=[(200, 1), (3, 2), (77, 5)])
        assert_close(case.by_kernel(kernel, fewest=20), case.by_mlx(), setup.shape.dtype)


@by_shim
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=str)
def test_scores_of_any_size_neither_overflow_nor_vanish(dtype: mx.Dtype) -> None:
    setup = Setup(KernelShape(dtype, 64, 3, 16), 2, 1)
    case = Case(setup, 3, lengths=[(90, 1), (40, 4)])
    case.q = case.q * 300
    got = case.by_kernel(PagedKernel(setup.shape, ShimKernel), fewest=16)
    assert_close(got, case.by_mlx(), dtype)


@by_shim
def test_neighbours_change_nothing() -> None:
    setup = SETUPS["float32, heads of 64 in 3s"]
    kernel = PagedKernel(setup.shape, ShimKernel)
    case = Case(setup, 5, lengths=[(60, 3), (130, 1), (9, 9)])
    together = case.by_kernel(kernel)
    rows, q, at = case.rows, case.q, 0
    for row in rows:
        case.rows, case.q = [row], q[at : at + row.count]
        assert np.array_equal(case.by_kernel(kernel), together[at : at + row.count])
        at += row.count


@by_shim
def test_a_table_that_is_too_short_is_noticed() -> None:
    setup = SETUPS["float32, heads of 64 in 3s"]
    case = Case(setup, 7, lengths=[(60, 1)])
    case.rows[0].table.blocks.pop()
    with pytest.raises(AssertionError, match="a block is missing"):
        case.by_kernel(PagedKernel(setup.shape, ShimKernel))
    case = Case(setup, 7, lengths=[(60, 1)])
    case.rows[0].table.blocks[0] = 1000
    with pytest.raises(KernelFault, match=r"pool0.*out of bounds"):
        case.by_kernel(PagedKernel(setup.shape, ShimKernel))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "group", "eligible"),
    [
        (mx.float32, 32, 1, True),
        (mx.bfloat16, 256, 71, True),
        (mx.float16, 80, 1, False),
        (mx.float16, 288, 1, False),
        (mx.float16, 16, 1, False),
        (mx.int32, 64, 1, False),
    ],
)
def test_which_shapes_have_a_kernel(
    dtype: mx.Dtype, head_dim: int, group: int, eligible: bool
) -> None:
    shape = KernelShape(dtype, head_dim, group, 16)
    assert shape.eligible == eligible
    assert 1 <= shape.queries * head_dim <= max(512, head_dim)


@pytest.mark.metal
@pytest.mark.parametrize("fewest", [256, 20])
def test_metal_gives_what_attention_gives(setup: Setup, fewest: int) -> None:
    kernel = PagedKernel(setup.shape)
    for seed in range(12):
        case = Case(setup, seed)
        assert_close(case.by_kernel(kernel, fewest=fewest), case.by_mlx(), setup.shape.dtype)
