"""Keys and values of all texts: slots -> arrays, written in place.

MLX updates an array in place only where nothing else refers to it. So the pool alone holds its
arrays, and a write costs the same in a pool of any size, provided that what was read from the layer
before has been evaluated: a view that is still waited for makes MLX copy the whole segment.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import mlx.core as mx

from mlxgpt.infer.paged.blocks import Copy
from mlxgpt.infer.paged.places import Places
from mlxgpt.model import GPT

_COPIED_AT_ONCE = 64 * 2**20
"""Bytes that a copy inside of the pool holds beside it at most, but for a single layer's."""


class Pool:
    """One array for each segment and layer, [2 * Hkv, slots, D]: the keys' heads, then the values'.

    Slot = block id * block_size + place; block ids count through the segments. A segment is never
    resized, so growing copies nothing.
    """

    def __init__(
        self, n_layer: int, kv_heads: int, head_dim: int, dtype: mx.Dtype, block_size: int
    ) -> None:
        self.n_layer, self.kv_heads, self.head_dim = n_layer, kv_heads, head_dim
        self.dtype, self.block_size = dtype, block_size
        self.segments: list[int] = []
        """Number of blocks of each segment."""
        self.arrays: list[list[mx.array]] = []
        """arrays[segment][layer]. To be read, or viewed for as long as an evaluation takes."""

    @classmethod
    def for_model(cls, model: GPT, block_size: int) -> "Pool":
        """Return an empty pool for the keys and values of `model`, in its precision."""
        config, weights = model.config, model.weights()
        quantized = weights.get("model.embed_tokens.scales")
        embedding = weights["model.embed_tokens.weight"] if quantized is None else quantized
        return cls(config.n_layer, config.kv_heads, config.head_size, embedding.dtype, block_size)

    @property
    def segment_slots(self) -> list[int]:
        """Number of slots of each segment."""
        return [blocks * self.block_size for blocks in self.segments]

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block in all layers."""
        token = 2 * self.kv_heads * self.head_dim * self.dtype.size
        return self.n_layer * self.block_size * token

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        return sum(self.segments) * self.bytes_per_block

    def grow(self, segments: Sequence[int]) -> None:
        """Add what is missing, zeros, so that there are `segments`: the numbers of blocks of all
        segments, those that exist already first."""
        known = len(self.segments)
        assert list(segments[:known]) == self.segments, "a segment cannot be resized"
        for blocks in segments[known:]:
            shape = (2 * self.kv_heads, blocks * self.block_size, self.head_dim)
            layers = [mx.zeros(shape, dtype=self.dtype) for _ in range(self.n_layer)]
            mx.eval(layers)
            self.arrays.append(layers)
            self.segments.append(blocks)

    def places(self, slots: Sequence[int]) -> Places:
        """Return how these slots are written; once a step, for `write` in every layer."""
        return Places(slots, self.segment_slots)

    def write(self, layer: int, places: Places, k: mx.array, v: mx.array) -> None:
        """Store k and v (N, Hkv, D) at the N places."""
        assert k.shape == v.shape == (places.count, self.kv_heads, self.head_dim)
        self._store(layer, places, k.swapaxes(0, 1), v.swapaxes(0, 1))

    def read(self, layer: int, slots: Sequence[int]) -> tuple[mx.array, mx.array]:
        """Return copies of the keys and the values (Hkv, N, D) in N slots, in their order."""
        parts = [
            self.arrays[segment][layer][:, mx.array(local)] for segment, local in self._runs(slots)
        ]
        both = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=1)
        return both[: self.kv_heads], both[self.kv_heads :]

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy blocks; all of them are read before the first is written."""
        if not copies:
            return
        size = self.block_size
        sources = [c.source * size + i for c in copies for i in range(c.count)]
        targets = [c.target * size + i for c in copies for i in range(c.count)]
        places = self.places(targets)
        layer_bytes = len(sources) * self.bytes_per_block // size // self.n_layer
        at_once = max(1, _COPIED_AT_ONCE // max(1, layer_bytes))
        for begin in range(0, self.n_layer, at_once):
            layers = range(begin, min(begin + at_once, self.n_layer))
            read = [self.read(layer, sources) for layer in layers]
            mx.eval(read)  # a read that is still going on would keep the writes from being in place
            for layer, (k, v) in zip(layers, read, strict=True):
                self._store(layer, places, k, v)
            mx.eval([self.arrays[u.segment][layer] for u in places.updates for layer in layers])

    def _store(self, layer: int, places: Places, k: mx.array, v: mx.array) -> None:
        """Write k and v (Hkv, N, D). The arrays change where they are held: no second reference."""
        heads = self.kv_heads
        for update in places.updates:
            layers = self.arrays[update.segment]
            layers[layer][:heads, update.slots] = k[:, update.tokens]
            layers[layer][heads:, update.slots] = v[:, update.tokens]

    def _runs(self, slots: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Yield (segment, slots in it) of each run of slots in one segment."""
        ends = list(accumulate(self.segment_slots))
        at, run = -1, []
        for slot in slots:
            segment = next(i for i, end in enumerate(ends) if slot < end)
            if segment != at and run:
                yield at, run
                run = []
            at = segment
            run.append(slot - ends[segment] + self.segment_slots[segment])
        if run:
            yield at, run
