"""A contiguous key/value cache of 8 or 4 bits a number, behind `Attend`; slides as `KVCache` does.

Keys and values are packed token by token as `mx.quantize` packs the rows of a matrix, so a token
costs the same at any place. A token sees itself and those fed with it packed, too: it makes no
difference whether a text comes at once or in pieces. The twin is `KVCache`.
"""

from collections.abc import Mapping

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.infer.kv_cache import CacheLayer
from mlxgpt.model import Causal, Quantization, attention, narrower

_FEW_ON_CPU = 4
"""Queries of one key/value head up to which products with packed numbers are faster than unpacking
them first: 3 take three quarters of the time, 24 take three times as long."""
_FEW_ON_GPU = 64
"""The same where reading is what takes time, and packed numbers are few bytes. Not measured."""

Parts = Mapping[str, mx.array]
"""What `mx.quantize` makes of keys or values, each (B, Hkv, S, ...)."""


class QuantizedKVCache:
    """Attention over all tokens fed so far, or the last `window` of them; see `KVCache`.

    A number takes `bits` and its share of what its group has: two numbers of the keys' precision.
    That is 9/32 of float32 with 8 bits and groups of 64, and 5/32 with 4 bits. With 8 bits a text
    often stays the same for a hundred tokens; with 4 bits a small model may write another one from
    its first tokens on.
    """

    def __init__(
        self,
        n_layer: int,
        window: int | None = None,
        *,
        head_dim: int,
        bits: int = 8,
        group_size: int | None = None,
    ) -> None:
        """Keep heads of `head_dim` numbers, packed in groups of `group_size`; None: 64, or 32 where
        heads are no multiple of 64. Raises `ConfigError` for what MLX cannot pack."""
        require(bits in (4, 8), f"a cache is packed to 8 or 4 bits; got {bits}")
        if group_size is None:
            group_size = 32 if head_dim % 64 else 64
        self._quantization = Quantization(bits=bits, group_size=group_size)
        require(
            head_dim % group_size == 0,
            f"heads of {head_dim} cannot be packed in groups of {group_size}; "
            "use a cache that is not quantized",
        )
        self.window = window
        self._layers = [
            {part: CacheLayer() for part in self._quantization.parts} for _ in range(n_layer)
        ]

    def offset(self, layer: int) -> int:
        return self._layers[layer]["weight"].seen

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        window = narrower(self.window, window)
        keys, values = self._append(layer, k, v, window)
        causal = Causal(window)
        if q.shape[1] // k.shape[1] * q.shape[2] <= _few():
            return self._packed_attention(q, keys, values, causal)
        keys, values = (self._quantization.dequantize(x, q.dtype) for x in (keys, values))
        return attention(q, keys, values, causal)

    @property
    def length(self) -> int:
        """Number of tokens fed so far."""
        return self.offset(0)

    @property
    def nbytes(self) -> int:
        """Bytes held by the buffers of all layers."""
        return sum(
            buffer.nbytes
            for layer in self._layers
            for part in layer.values()
            for buffer in (part.keys, part.values)
            if buffer is not None
        )

    def _append(
        self, layer: int, k: mx.array, v: mx.array, window: int | None
    ) -> tuple[Parts, Parts]:
        """Add T tokens; return the keys and values that these tokens may look at."""
        new_keys, new_values = self._quantization.quantize(k), self._quantization.quantize(v)
        keys, values = {}, {}
        for part, buffers in self._layers[layer].items():
            keys[part], values[part] = buffers.append(new_keys[part], new_values[part], window)
        return keys, values

    def _packed_attention(
        self, q: mx.array, keys: Parts, values: Parts, causal: Causal
    ) -> mx.array:
        """Do what `attention` does, without unpacking."""
        b, h, t, d = q.shape
        kv_heads, s = keys["weight"].shape[1:3]
        # The queries that share a key head lie side by side, so that no key is copied.
        rows = (q * d**-0.5).reshape(b, kv_heads, -1, d)
        scores = self._product(rows, keys, transpose=True).reshape(b, h, t, s)
        if (mask := causal.array(t, s)) is not None:
            scores = mx.where(mask, scores, -float("inf"))
        weights = mx.softmax(scores, axis=-1, precise=True).reshape(b, kv_heads, -1, s)
        return self._product(weights, values, transpose=False).reshape(b, h, t, d)

    def _product(self, x: mx.array, parts: Parts, *, transpose: bool) -> mx.array:
        return mx.quantized_matmul(
            x,
            parts["weight"],
            parts["scales"],
            parts["biases"],
            transpose=transpose,
            group_size=self._quantization.group_size,
            bits=self._quantization.bits,
        )


def _few() -> int:
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return _FEW_ON_CPU if on_cpu else _FEW_ON_GPU
