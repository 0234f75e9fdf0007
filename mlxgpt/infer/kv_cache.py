"""A contiguous key/value cache behind `Attend`, with a sliding window.

Keys are kept rotated at their absolute position, so dropping the oldest ones changes nothing for
the rest. The twin without a cache is `CausalAttend(window)` over the whole text.
"""

import mlx.core as mx

from mlxgpt.model import Causal, attention, narrower

_GROWTH = 256
"""Buffers grow, and slide, once in so many tokens: the cost of a token stays constant."""


class CacheLayer:
    """Keys and values (B, Hkv, capacity, D) of one layer; `[begin, end)` is still visible."""

    def __init__(self) -> None:
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.begin = self.end = 0
        self.seen = 0

    def append(self, k: mx.array, v: mx.array, window: int | None) -> tuple[mx.array, mx.array]:
        """Add T tokens; return the keys and values that these tokens may look at."""
        count = k.shape[2]
        if window is not None:  # the first new token sees window - 1 older ones
            self.begin = max(self.begin, self.end - (window - 1))
        if self.keys is None or self.end + count > self.keys.shape[2]:
            self._make_room(k, v, count)
        assert self.keys is not None
        assert self.values is not None
        self.keys[:, :, self.end : self.end + count] = k
        self.values[:, :, self.end : self.end + count] = v
        self.end += count
        self.seen += count
        return self.keys[:, :, self.begin : self.end], self.values[:, :, self.begin : self.end]

    def _make_room(self, k: mx.array, v: mx.array, count: int) -> None:
        """Move what is visible to the front of a buffer that has room for `count` more."""
        live = self.end - self.begin
        capacity = -(-(live + count) // _GROWTH) * _GROWTH + _GROWTH

        def moved(old: mx.array | None, like: mx.array) -> mx.array:
            b, h, _, d = like.shape
            new = mx.zeros((b, h, capacity, d), dtype=like.dtype)
            if old is not None and live:
                new[:, :, :live] = old[:, :, self.begin : self.end]
            return new

        self.keys, self.values = moved(self.keys, k), moved(self.values, v)
        self.begin, self.end = 0, live


class KVCache:
    """Attention over all tokens fed so far, or the last `window` of them.

    Feed a text in pieces of any length, in order; each forward pass continues where the last one
    ended. Memory is at most window + 512 tokens plus the longest piece.
    """

    def __init__(self, n_layer: int, window: int | None = None) -> None:
        self.window = window
        self._layers = [CacheLayer() for _ in range(n_layer)]

    def offset(self, layer: int) -> int:
        return self._layers[layer].seen

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        window = narrower(self.window, window)
        keys, values = self._layers[layer].append(k, v, window)
        return attention(q, keys, values, Causal(window))

    @property
    def length(self) -> int:
        """Number of tokens fed so far."""
        return self._layers[0].seen

    @property
    def nbytes(self) -> int:
        """Bytes held by the buffers of all layers."""
        return sum(
            buffer.nbytes
            for layer in self._layers
            for buffer in (layer.keys, layer.values)
            if buffer is not None
        )
