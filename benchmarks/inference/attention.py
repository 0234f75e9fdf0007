"""`python -m benchmarks.inference.attention`: attention over a pool against contiguous arrays.

One layer of SmolLM2-135M's shape: 9 query and 3 key/value heads of 64. All store the keys and
values of the new tokens first. Peers: MLX's own attention, `mlxgpt.model.attention`, and the
operations of the paged attention on one contiguous array, which shows what the paging itself costs.
"""

import argparse
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from benchmarks.harness import Case, measure, print_conditions, show
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.run_views import RunViews
from mlxgpt.infer.paged.softmax_weights import weights_function
from mlxgpt.infer.paged.step_attention import StepRow
from mlxgpt.model import Causal, attention

HEADS, KV_HEADS, SIZE, BLOCK = 9, 3, 64, 16
LAYERS = 4


@dataclass(frozen=True)
class Batch:
    """Texts in a pool, `runs` pieces each, and the tokens that a step computes of each."""

    lengths: Sequence[int]
    counts: Sequence[int]
    runs: int = 1
    prefix: int = 0
    """Tokens with which all texts begin, stored once."""


def rows(batch: Batch, seed: int = 0) -> tuple[list[StepRow], int]:
    """Return the rows and the number of blocks of a pool twice as large as needed.

    Every run has room for the next power of two of blocks, at a multiple of that, at random.
    """
    draw = random.Random(seed)
    prefix = list(range(batch.prefix // BLOCK))
    sizes = []
    for length in batch.lengths:
        blocks = -(-length // BLOCK) - len(prefix)
        run = -(-blocks // batch.runs)
        sizes.append([min(run, blocks - i) for i in range(0, blocks, run)])
    rooms = [[1 << (size - 1).bit_length() for size in each] for each in sizes]
    whole = 1 << (len(prefix) + sum(map(sum, rooms)) - 1).bit_length()
    total = 2 * whole
    free = [True] * total
    free[: len(prefix)] = [False] * len(prefix)
    tables: list[list[list[int]]] = [[[] for _ in each] for each in sizes]
    order = [(rooms[i][j], i, j) for i in range(len(sizes)) for j in range(len(sizes[i]))]
    draw.shuffle(order)
    for room, i, j in sorted(order, key=lambda x: -x[0]):
        places = [a for a in range(0, total, room) if all(free[a : a + room])]
        at = draw.choice(places[: max(1, len(places) // 2)])
        free[at : at + room] = [False] * room
        tables[i][j] = list(range(at, at + sizes[i][j]))
    found = []
    for runs, length, count in zip(tables, batch.lengths, batch.counts, strict=True):
        blocks = prefix + [block for run in runs for block in run]
        found.append(StepRow(BlockTable(blocks, length), count))
    return found, total


def by_hand(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    """The paged attention's operations on q (B, H, 1, D) and contiguous k and v."""
    b, h, t, d = q.shape
    grouped = q.reshape(b, KV_HEADS, h // KV_HEADS * t, d)
    scores = grouped @ k.swapaxes(-1, -2)
    weights = weights_function(d**-0.5)(scores, scores.max(axis=-1, keepdims=True))
    return ((weights @ v) / (weights @ mx.ones((k.shape[2], 1)))).reshape(b, h, t, d)


def paged(batch: Batch, seed: int = 0) -> Callable[[], None]:
    """Return a step of LAYERS layers; the plan is made anew in each."""
    found, blocks = rows(batch, seed)
    pool = Pool(LAYERS, KV_HEADS, SIZE, mx.float32, BLOCK)
    pool.grow([blocks])
    for layer in range(LAYERS):
        pool.arrays[0][layer] = mx.random.normal(pool.arrays[0][layer].shape)
    n = sum(batch.counts)
    q = mx.random.normal((n, HEADS, SIZE))
    k, v = mx.random.normal((2, n, KV_HEADS, SIZE))
    mx.eval(pool.arrays, q, k, v)
    step = RunViews(pool, found)
    step(0, q, k, v, None)  # plans

    def run() -> None:
        mx.eval([step(layer, q, k, v, None) for layer in range(LAYERS)])

    return run


Attention = Callable[[mx.array, mx.array, mx.array], mx.array]


def contiguous(batch: Batch, attend: Attention) -> Callable[[], None]:
    """Return the same step where each length has an array of its own in each layer."""
    groups = Counter(zip(batch.lengths, batch.counts, strict=True))
    parts = []
    for (length, count), b in groups.items():
        shape = (b, KV_HEADS, length + 64, SIZE)
        caches = [[mx.random.normal(shape), mx.random.normal(shape)] for _ in range(LAYERS)]
        q = mx.random.normal((b, HEADS, count, SIZE))
        k, v = mx.random.normal((2, b, KV_HEADS, count, SIZE))
        mx.eval(caches, q, k, v)
        parts.append((length, count, caches, q, k, v))

    def run() -> None:
        outputs = []
        for length, count, caches, q, k, v in parts:
            for keys, values in caches:
                keys[:, :, length - count : length] = k
                values[:, :, length - count : length] = v
                outputs.append(attend(q, keys[:, :, :length], values[:, :, :length]))
        mx.eval(outputs)

    return run


def mlx_attention(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    mask = "causal" if q.shape[2] > 1 else None
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=SIZE**-0.5, mask=mask)


def our_attention(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
    return attention(q, k, v, Causal())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference.attention")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--contexts", type=int, nargs="*", default=[512, 2048, 4096])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--queries", type=int, default=1)
    chosen = parser.parse_args(arguments)
    print_conditions()
    table = []
    for context in chosen.contexts:
        for b in chosen.batches:
            batches = [Batch([context] * b, [chosen.queries] * b, runs) for runs in (1, 4, 16)]
            table.append(compare(f"{b} x {context}", batches, chosen.rounds))
    draw = random.Random(1)
    mixed = [min(900, int(12 * 2 ** draw.uniform(0, 5.5))) for _ in range(32)]
    counts = [chosen.queries] * 32
    table.append(compare("32 of 12 to 600", [Batch(mixed, counts)], chosen.rounds))
    alike = Batch([544] * 32, counts, prefix=512)
    table.append(compare("32 sharing 512 of 544", [alike], chosen.rounds))
    headings = ["fastest of all rounds", "mlxgpt.model", "by hand"]
    headings += [f"paged, {runs} runs" for runs in (1, 4, 16)]
    show("time against contiguous arrays and MLX's attention", headings, table, keep=False)


def compare(title: str, batches: Sequence[Batch], rounds: int) -> list[str]:
    """Measure the peers of the first batch and the paged attention of all; return the ratios."""
    first = batches[0]
    work = len(first.lengths) * LAYERS
    cases = [
        Case("contiguous, MLX", contiguous(first, mlx_attention), work),
        Case("contiguous, mlxgpt.model", contiguous(first, our_attention), work),
        Case("contiguous, by hand", contiguous(first, by_hand), work),
    ]
    cases += [Case(f"paged, {b.runs} runs", paged(b), work) for b in batches]
    if max(first.counts) > 1:
        del cases[2]
    figures = measure(f"attention, {title}", cases, unit="rows", rounds=rounds)
    seconds = [min(f.seconds) for f in figures]
    ratios = [f"{s / seconds[0]:.2f}" for s in seconds[1:]]
    if max(first.counts) > 1:
        ratios.insert(1, "-")
    return [title, *ratios, *["-"] * (5 - len(ratios))]


if __name__ == "__main__":
    main()
