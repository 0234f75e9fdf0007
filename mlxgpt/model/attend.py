"""The seam between the network and whoever runs it: what "attend" means is the caller's.

An attention layer rotates its queries and keys by `attend.offset(layer)` and hands them to
`attend(layer, q, k, v)`. Training gives plain causal attention, generation a cache; a new way of
attending is a new class beside these, and the network does not change.
"""

from typing import Protocol

import mlx.core as mx

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
        mask = causal_mask(q.shape[2], k.shape[2], narrower(self.window, window))
        return attention(q, k, v, mask)


class SegmentAttend:
    """Causal attention inside segments: packed examples do not see each other.

    `segment_ids` (B, T) numbers the examples of a row; a token sees earlier tokens of the same
    number, and its rotary position counts from the start of its segment. Numbers must be runs
    (1, 1, 1, 2, 2, ...): a number does not come back later in the row.
    """

    def __init__(self, segment_ids: mx.array) -> None:
        length = segment_ids.shape[1]
        same = segment_ids[:, :, None] == segment_ids[:, None, :]
        index = mx.arange(length)
        seen = same & (index[:, None] >= index[None, :])  # (B, T, T)
        self.mask = seen[:, None]  # (B, 1, T, T)
        self.positions = seen.astype(mx.int32).sum(-1) - 1  # (B, T)

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
        length = q.shape[2]
        if window is None or length <= window:
            return attention(q, k, v, self.mask)
        # A segment is a run, so two of its tokens are as far apart as their places in the row.
        index = mx.arange(length)
        near = index[None, :] > index[:, None] - window
        return attention(q, k, v, self.mask & near)


def narrower(a: int | None, b: int | None) -> int | None:
    """Return the smaller of two windows; None is one without an end."""
    return b if a is None else a if b is None else min(a, b)


def causal_mask(queries: int, keys: int, window: int | None) -> mx.array | str | None:
    """Return the mask for `queries` tokens at the end of `keys` tokens, as `attention` takes it."""
    if window is None or keys <= window:
        return "causal" if queries > 1 else None
    query = mx.arange(keys - queries, keys)[:, None]
    key = mx.arange(keys)[None, :]
    return (key <= query) & (key > query - window)
