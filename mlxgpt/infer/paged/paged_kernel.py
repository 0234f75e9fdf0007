"""Work lists and arrays -> launches of the paged attention kernel, the sources read and filled in.

The kernel is made by `mx.fast.metal_kernel`, which writes the signature from the names and arrays
and compiles at the first launch. Tests hand in another maker, which runs the same body on a CPU.
"""

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

import mlx.core as mx
import numpy as np

from mlxgpt.infer.paged.kernel_work import ITEM, KernelWork

DTYPES = (mx.float32, mx.float16, mx.bfloat16)
MOST_SEGMENTS = 8
"""Arrays of one layer: each takes two of the 31 buffers that a Metal kernel may have."""
SIMDGROUPS = 8
"""Simdgroups of a threadgroup."""
LANES = 32
"""Threads of a simdgroup, on every Apple GPU."""

_STRETCH = 8
"""Neighbouring positions that a simdgroup takes at once, at most."""
_HELD = 16
"""Numbers of queries that a lane holds at most; it holds as many sums, in registers."""
_PLACE = "        // OTHER SEGMENTS\n"
_SEGMENT = """\
        if (slot >= slots) {{
            slot -= slots;
            pool = pool{i};
            slots = pool{i}_shape[1];
        }}
"""


class Kernel(Protocol):
    """What `mx.fast.metal_kernel` returns, as far as it is used here."""

    def __call__(
        self,
        *,
        inputs: list[mx.array],
        template: list[tuple[str, mx.Dtype | int]],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: list[tuple[int, ...]],
        output_dtypes: list[mx.Dtype],
    ) -> list[mx.array]: ...


KernelMaker = Callable[..., Kernel]
"""`mx.fast.metal_kernel`, or what does the same: name, input_names, output_names, source."""


@dataclass(frozen=True)
class KernelShape:
    """What the kernel is compiled for, beside the number of segments."""

    dtype: mx.Dtype
    head_dim: int
    group: int
    """Query heads that share a key/value head."""
    block_size: int

    @property
    def eligible(self) -> bool:
        """Whether there is a kernel for it: head sizes 32 to 256 in steps of 32."""
        fits = self.head_dim % LANES == 0 and LANES <= self.head_dim <= 256
        return fits and self.dtype in DTYPES

    @property
    def queries(self) -> int:
        """Queries of a work item: all heads of a group if they can be held, rounded up."""
        most = min(8, _HELD * LANES // self.head_dim)
        return min(most, 1 << (self.group - 1).bit_length())

    @property
    def stretch(self) -> int:
        """Neighbouring positions, all of one block, that a simdgroup takes at once."""
        return math.gcd(self.block_size, _STRETCH)

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("mlx.core.")
        return f"{dtype}, heads of {self.head_dim} in {self.group}s, blocks of {self.block_size}"


def attention_source(segments: int) -> str:
    """Return the kernel's body for a pool of `segments` arrays."""
    assert 1 <= segments <= MOST_SEGMENTS
    text = _text("paged_attention.metal")
    assert text.count(_PLACE) == 1
    return text.replace(_PLACE, "".join(_SEGMENT.format(i=i) for i in range(1, segments)))


def source_hash() -> str:
    """Return a hash of everything that decides what is compiled."""
    files = (_text("paged_attention.metal"), _text("merge_parts.metal"), _SEGMENT)
    numbers = (ITEM, SIMDGROUPS, _STRETCH, _HELD)
    return hashlib.sha256(repr((files, numbers)).encode()).hexdigest()


class WorkArrays:
    """A `KernelWork` as MLX arrays: made once for all layers of a step."""

    def __init__(self, work: KernelWork) -> None:
        self.items, self.parts, self.split = work.items, work.parts, work.split
        self.tokens = len(work.first_parts) - 1
        self.plan = mx.array(work.plan)
        # MLX passes arrays below 8 numbers in another way, which would be compiled once more.
        self.first_parts = mx.array(np.pad(work.first_parts, (0, max(0, 7 - self.tokens))))


class PagedKernel:
    """Attention over a pool by the kernel, for one `KernelShape`."""

    def __init__(self, shape: KernelShape, make: KernelMaker | None = None) -> None:
        self.shape = shape
        self._make = make or cast(KernelMaker, mx.fast.metal_kernel)
        self._of_segments: dict[int, Kernel] = {}
        self._merge: Kernel | None = None

    def __call__(self, q: mx.array, segments: Sequence[mx.array], work: WorkArrays) -> mx.array:
        """Return (N, H, D) for queries q (N, H, D), not scaled yet, over the pool's `segments`,
        each (2 Hkv, slots, D); N must be the tokens of `work`."""
        n, heads, d = q.shape
        kv_heads = segments[0].shape[0] // 2
        shape = self.shape
        assert (q.dtype, d, heads / kv_heads) == (shape.dtype, shape.head_dim, shape.group)
        assert all(s.dtype == shape.dtype and s.shape[::2] == (2 * kv_heads, d) for s in segments)
        assert work.tokens == n
        parts_dtype = mx.float32 if work.split else q.dtype
        out, stats = self._attention_kernel(len(segments))(
            inputs=[q, work.plan, *segments],
            template=[
                ("T", shape.dtype),
                ("O", parts_dtype),
                ("D", d),
                ("Q", shape.queries),
                ("GROUP", shape.group),
                ("BLOCK", shape.block_size),
                ("STRETCH", shape.stretch),
                ("SIMDGROUPS", SIMDGROUPS),
                ("ITEM", ITEM),
            ],
            grid=(LANES * SIMDGROUPS, kv_heads, work.items),
            threadgroup=(LANES * SIMDGROUPS, 1, 1),
            output_shapes=[(work.parts, heads, d), (work.parts, heads, 2)],
            output_dtypes=[parts_dtype, mx.float32],
        )
        if not work.split:
            return out
        (merged,) = self._merge_kernel()(
            inputs=[out, stats, work.first_parts],
            template=[("O", q.dtype), ("D", d)],
            grid=(LANES, heads, n),
            threadgroup=(LANES, 1, 1),
            output_shapes=[(n, heads, d)],
            output_dtypes=[q.dtype],
        )
        return merged

    def _attention_kernel(self, segments: int) -> Kernel:
        if segments not in self._of_segments:
            self._of_segments[segments] = self._make(
                name=f"mlxgpt_paged_attention_{segments}",  # MLX keeps kernels by their names
                input_names=["q", "plan", *(f"pool{i}" for i in range(segments))],
                output_names=["out", "stats"],
                source=attention_source(segments),
            )
        return self._of_segments[segments]

    def _merge_kernel(self) -> Kernel:
        if self._merge is None:
            self._merge = self._make(
                name="mlxgpt_merge_parts",
                input_names=["partial", "stats", "first_parts"],
                output_names=["out"],
                source=_text("merge_parts.metal"),
            )
        return self._merge


@functools.cache
def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
