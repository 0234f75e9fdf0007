"""Pools in which texts lie in all ways, and what each of these texts gives alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np

from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepAttention, StepRow, new_slots
from mlxgpt.model import CausalAttend


@dataclass
class Heads:
    kv: int = 2
    group: int = 3
    size: int = 8


@dataclass
class Texts:
    """A pool in which texts lie, and what each of them has stored, token by token."""

    pool: Pool
    heads: Heads
    rows: list[StepRow] = field(default_factory=list)
    stored: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """Keys and values (length, Hkv, D) of each text."""

    def queries(self) -> mx.array:
        n = sum(row.count for row in self.rows)
        generator = np.random.Generator(np.random.Philox(key=n))
        shape = (n, self.heads.kv * self.heads.group, self.heads.size)
        return mx.array(generator.normal(size=shape).astype(np.float32) * 2)

    def new(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the tokens of the step."""
        keys = [k[-row.count :] for row, (k, _) in self.each()]
        values = [v[-row.count :] for row, (_, v) in self.each()]
        return mx.array(np.concatenate(keys)), mx.array(np.concatenate(values))

    def each(self) -> list[tuple[StepRow, tuple[np.ndarray, np.ndarray]]]:
        return list(zip(self.rows, self.stored, strict=True))

    def fill(self, keys: float = 0.0, values: float = 0.0) -> None:
        """Store all tokens from before the step, and these numbers in all other slots."""
        for layers in self.pool.arrays:
            for layer, array in enumerate(layers):
                heads = np.array([keys, values]).repeat(self.heads.kv)[:, None, None]
                layers[layer] = mx.broadcast_to(mx.array(heads, dtype=array.dtype), array.shape) + 0
        mx.eval(self.pool.arrays)
        for row, (k, v) in self.each():
            if before := row.position - row.table.dropped:
                table = BlockTable(row.table.blocks, row.position, row.table.dropped)
                slots = new_slots([StepRow(table, before)], self.pool.block_size)
                part = slice(row.table.dropped, row.position)
                for layer in range(self.pool.n_layer):
                    self.pool.write(
                        layer, self.pool.places(slots), mx.array(k[part]), mx.array(v[part])
                    )
                mx.eval(self.pool.arrays)

    def run(self, make: Callable[..., StepAttention], window: int | None = None) -> mx.array:
        out = make(self.pool, self.rows)(0, self.queries(), *self.new(), window)
        mx.eval(out, self.pool.arrays)
        return out

    def expected(self, window: int | None = None) -> mx.array:
        """Each text alone, nothing paged."""
        outputs, at, queries = [], 0, self.queries()
        for row, stored in self.each():
            q = queries[at : at + row.count].swapaxes(0, 1)[None]
            k, v = (mx.array(x).swapaxes(0, 1)[None] for x in stored)
            outputs.append(CausalAttend(window)(0, q, k, v, None)[0].swapaxes(0, 1))
            at += row.count
        return mx.concatenate(outputs)


def texts(
    seed: int,
    counts: Sequence[int],
    *,
    lengths: Sequence[int] | int = 60,
    block_size: int = 4,
    segments: int = 1,
    order: str = "shuffled",
    shared: int = 0,
    dropped: int = 0,
    heads: Heads | None = None,
    n_layer: int = 1,
) -> Texts:
    """Lay out texts of `lengths` (longest, or of each), the last `counts` tokens of which are due.

    `order` is that of each text's blocks: "shuffled" over the pool, "runs" of a few neighbours,
    "whole" texts one after the other, or "apart": whole, at equal distances. The first `shared`
    blocks are the same for two of three texts, `dropped` blocks of every other one were given back.
    """
    heads = heads or Heads()
    generator = np.random.Generator(np.random.Philox(key=seed))
    if isinstance(lengths, int):
        low = [shared * block_size + c for c in counts]
        lengths = [int(generator.integers(a, max(a, lengths) + 1)) for a in low]
    needed = [-(-n // block_size) for n in lengths]
    room = max(needed) + 1
    total = len(counts) * room + shared
    sizes = [total // segments + 1] * segments
    pool = Pool(n_layer, heads.kv, heads.size, mx.float32, block_size)
    pool.grow(sizes)
    ids = list(range(sum(sizes)))
    if order == "shuffled":
        ids = generator.permutation(ids).tolist()
    elif order == "runs":
        cuts = sorted(generator.choice(len(ids) - 1, len(ids) // 4, replace=False) + 1)
        pieces = np.split(np.array(ids), cuts)
        ids = [i for at in generator.permutation(len(pieces)) for i in pieces[at].tolist()]
    begin, ids = ids[:shared], ids[shared:]
    found = Texts(pool, heads)

    def random(tokens: int) -> tuple[np.ndarray, np.ndarray]:
        shape = (2, tokens, heads.kv, heads.size)
        k, v = generator.normal(size=shape).astype(np.float32)
        return k, v

    prefix = random(shared * block_size)
    for i, (count, length, blocks) in enumerate(zip(counts, lengths, needed, strict=True)):
        shares = shared and i % 3 != 2 and length - count >= shared * block_size
        own = ids[i * room : i * room + blocks] if order == "apart" else ids[:blocks]
        if order != "apart":
            ids = ids[blocks:]
        k, v = random(length)
        if shares:
            own = begin + own[: blocks - shared]
            k[: shared * block_size], v[: shared * block_size] = prefix
        gone = min(dropped, (length - count) // block_size) if i % 2 else 0
        table = BlockTable(own[gone:], length, gone * block_size)
        found.rows.append(StepRow(table, count))
        found.stored.append((k, v))
    found.fill()
    return found
