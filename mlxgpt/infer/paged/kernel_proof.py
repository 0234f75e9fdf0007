"""The paged attention kernel -> whether it can be trusted on this device: it is tried before use.

Nobody can promise that a kernel compiles, and computes what it should, on a GPU and with an MLX
that it was never run on. So where it is wanted for the first time it is compiled and compared with
the formula on random input. If it fails, that is said once, and the plain path serves; if it does
well, that is remembered in the cache folder for this device, system, MLX and source.
"""

import contextlib
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np

from mlxgpt import seeding
from mlxgpt.atomic import write_bytes
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.kernel_work import kernel_work
from mlxgpt.infer.paged.paged_kernel import (
    KernelMaker,
    KernelShape,
    PagedKernel,
    WorkArrays,
    source_hash,
)
from mlxgpt.infer.paged.step_attention import StepRow
from mlxgpt.machine.cache import cache_dir
from mlxgpt.machine.device import describe_device

ALLOWED = {mx.float32: 1e-4, mx.float16: 2e-3, mx.bfloat16: 6e-3}
"""Difference from float64 that rounding explains, relative to numbers above 1: the result is
rounded to 24, 11 or 8 bits, everything before it to 24."""

_KV_HEADS = 2
_TEXTS = ((1, 1), (300, 1), (37, 4), (530, 2), (20, 16))
"""(length, new tokens) of the texts that are tried."""
_TRIALS = ((1, None, 2**30), (3, 100, 48))
"""(arrays of the pool, window, positions from which on a text is cut into parts)."""

_kernels: dict[KernelShape, PagedKernel | None] = {}  # what was found out in this process


@dataclass(frozen=True)
class Proof:
    """What came out of a trial."""

    difference: float
    """The largest difference from the formula, relative to numbers above 1; infinite where no
    number came."""
    allowed: float
    reason: str | None = None
    """Why the kernel cannot be trusted, None if it can."""


def on_apple_gpu() -> bool:
    """Whether MLX computes on a Metal device."""
    return mx.metal.is_available() and mx.default_device().type == mx.DeviceType.gpu


def trusted_kernel(shape: KernelShape, make: KernelMaker | None = None) -> PagedKernel | None:
    """Return the kernel for `shape`, or None where the plain path has to serve.

    That is so without an Apple GPU, for head sizes that the kernel does not have, and where it
    fails its trial; the last is told by an `MLXGPTWarning`, once a process.
    """
    if not shape.eligible or not on_apple_gpu():
        return None
    if shape not in _kernels:
        kernel, facts = PagedKernel(shape, make), _facts(shape)
        _kernels[shape] = kernel if _remembered(facts) or _tried(kernel, facts) else None
    return _kernels[shape]


def prove(kernel: PagedKernel) -> Proof:
    """Try `kernel` on random texts, with and without a window, over one array and several."""
    allowed = ALLOWED[kernel.shape.dtype]
    try:
        worst = float(np.max([_difference(kernel, *trial) for trial in _TRIALS]))  # NaN stays
    except Exception as e:  # whatever MLX or Metal raise: they know it, we do not
        words = " ".join(str(e).split())[:300]
        return Proof(float("inf"), allowed, f"{type(e).__name__}: {words}")
    if not worst <= allowed:
        return Proof(worst, allowed, f"it differs from the formula by {worst:.1e}")
    return Proof(worst, allowed)


def _tried(kernel: PagedKernel, facts: str) -> bool:
    reason = prove(kernel).reason
    if reason is None:
        with contextlib.suppress(OSError):  # a cache is no must: it is tried again next time
            path = _path(facts)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, facts.encode())
        return True
    warnings.warn(
        f"the kernel for paged attention ({kernel.shape}) cannot be used on this device, a slower "
        f"way serves: {reason}",
        MLXGPTWarning,
        stacklevel=4,
    )
    return False


def _facts(shape: KernelShape) -> str:
    """Everything that a trial's outcome depends on, as JSON."""
    device = describe_device()
    facts = {"device": device.device, "system": device.os, "mlx": device.mlx}
    return json.dumps(facts | {"kernel": source_hash(), "shape": str(shape)}, indent=2) + "\n"


def _path(facts: str) -> Path:
    name = hashlib.sha256(facts.encode()).hexdigest()[:32]
    return cache_dir() / "kernels" / f"paged-attention-{name}.json"


def _remembered(facts: str) -> bool:
    try:
        return _path(facts).read_bytes() == facts.encode()
    except OSError:
        return False


def _difference(kernel: PagedKernel, arrays: int, window: int | None, fewest: int) -> float:
    """Compare kernel and formula on one pool; its slots that hold no token are NaN."""
    shape, random = kernel.shape, seeding.generator(0, "kernel-proof", arrays)
    size, d, heads = shape.block_size, shape.head_dim, _KV_HEADS * shape.group
    total = sum(-(-n // size) for n, _ in _TEXTS) + arrays  # blocks
    ids = iter(random.permutation(total).tolist())
    rows = []
    for length, new in _TEXTS:
        dropped = max(0, length - new + 1 - window) // size * size if window else 0
        blocks = [next(ids) for _ in range(-(-(length - dropped) // size))]
        rows.append(StepRow(BlockTable(blocks, length, dropped), new))
    q = _rounded(random.normal(size=(sum(r.count for r in rows), heads, d)), shape.dtype)
    pool = np.full((2 * _KV_HEADS, total * size, d), np.nan, np.float32)
    for row in rows:
        held = _slots(row, size)
        pool[:, held] = random.normal(size=(len(pool), len(held), d))
    pool = _rounded(pool, shape.dtype)
    edges = [total * i // arrays * size for i in range(arrays + 1)]
    segments = [pool[:, low:high] for low, high in pairwise(edges)]
    work = kernel_work(
        rows,
        window=window,
        block_size=size,
        group=shape.group,
        kv_heads=_KV_HEADS,
        queries=shape.queries,
        fewest=fewest,
    )
    got = kernel(q, segments, WorkArrays(work)).astype(mx.float32)
    wanted = _formula(_float64(q), _float64(pool), rows, size, window)
    return float(np.max(np.abs(_float64(got) - wanted) / np.maximum(1, np.abs(wanted))))


def _formula(
    q: np.ndarray, pool: np.ndarray, rows: Sequence[StepRow], size: int, window: int | None
) -> np.ndarray:
    """Attention by its definition (Vaswani et al., 2017, eq. 1), token by token, in float64."""
    out, group = [], q.shape[1] // _KV_HEADS
    for row in rows:
        slots = _slots(row, size)
        for token in range(row.count):
            last = row.table.length - row.count + token + 1
            first = max(row.table.dropped, 0 if window is None else last - window)
            seen = slots[first - row.table.dropped : last - row.table.dropped]
            keys, values = (np.repeat(x, group, 0) for x in np.split(pool[:, seen], 2))
            scores = np.einsum("hd,hsd->hs", q[len(out)], keys) / q.shape[2] ** 0.5
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            out.append(np.einsum("hs,hsd->hd", weights, values))
    return np.array(out)


def _slots(row: StepRow, size: int) -> np.ndarray:
    """Return the slots of the tokens that a text still has."""
    blocks = np.array(row.table.blocks)[:, None] * size + np.arange(size)
    return blocks.reshape(-1)[: row.table.length - row.table.dropped]


def _rounded(x: np.ndarray, dtype: mx.Dtype) -> mx.array:
    return mx.array(x.astype(np.float32)).astype(dtype)


def _float64(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)).astype(np.float64)
