"""The seam between the network and whoever runs it: what "attend" means is the caller's.

An attention layer rotates its queries and keys by `attend.offset(layer)` and hands them to
`attend(layer, q, k, v)`. Training gives plain causal attention, generation a cache; a new way of
attending is a new class beside these, and the network does not change.
"""

from typing import Protocol

import mlx.core as mx

from mlxgpt.model.causal import Causal, narrower
from mlxgpt.model.kernels import attention


class Attend(Protocol):
    """How the queries of one forward pass see keys and values."""

    def offset(self, layer: int) -> int | mx.array:
        """Return the rotary position of the first token (int, or one per row, (B,)), or the
        position of every token, (B, T)."""
        ...

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        """Attend in layer `layer`.

        q (B, H, T, D), k and v (B, Hkv, T, D), rotated; query head h uses key/value head
        h // (H // Hkv). `window` is how many tokens, itself included, this layer of the network
        looks back at most; None: all. Returns (B, H, T, D).
        """
        ...


class CausalAttend:
    """Each token sees itself and all earlier ones of its row, or the last `window` of them."""

    def __init__(self, window: int | None = None) -> None:
        self.window = window

    def offset(self, layer: int) -> int:  # noqa: ARG002
        return 0

    def __call__(
        self,
        layer: int,  # noqa: ARG002
        q: mx.array,
        k: mx.array,
        v: mx.array,
        window: int | None,
    ) -> mx.array:
        return attention(q, k, v, Causal(narrower(self.window, window)))


class SegmentAttend:
    """Causal attention inside segments: packed examples do not see each other.

    `segment_ids` (B, T) numbers the examples of a row; a token sees earlier tokens of the same
    number, and its rotary position counts from the start of its segment. Numbers must be runs
    (1, 1, 1, 2, 2, ...): a number does not come back later in the row. `longest`: no run of those
    that matter is longer, which spares looking further back; None: it is not known.
    """

    def __init__(self, segment_ids: mx.array, longest: int | None = None) -> None:
        self._segments, self._longest = segment_ids, longest
        rows, length = segment_ids.shape
        begins = segment_ids[:, 1:] != segment_ids[:, :-1]
        begins = mx.concatenate([mx.ones((rows, 1), mx.bool_), begins], axis=1)
        index = mx.arange(length)
        self.positions = index - mx.cummax(mx.where(begins, index, 0), axis=1)  # (B, T)

    def offset(self, layer: int) -> mx.array:  # noqa: ARG002
        return self.positions

    def __call__(
        self,
        layer: int,  # noqa: ARG002
        q: mx.array,
        k: mx.array,
        v: mx.array,
        window: int | None,
    ) -> mx.array:
        # A segment is a run, so two of its tokens are as far apart as their places in the row.
        return attention(q, k, v, Causal(narrower(self._longest, window), self._segments))
