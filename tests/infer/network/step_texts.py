"""A `StepAttention` as plain as can be: each text keeps its keys and values as they came."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from mlxgpt.model import Causal
from mlxgpt.model.kernels import plain_attention


@dataclass
class StepText:
    """Keys and values (Hkv, S, D) of each layer; the first belongs to token `first`."""

    first: int = 0
    stored: dict[int, tuple[mx.array, mx.array]] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Position of the next token."""
        return self.first + (self.stored[0][0].shape[1] if self.stored else 0)


class PlainStep:
    """One step: `counts[i]` more tokens of text i."""

    def __init__(self, texts: Sequence[StepText], counts: Sequence[int]) -> None:
        self._rows = list(zip(texts, counts, strict=True))
        places = [t.length + i for t, count in self._rows for i in range(count)]
        self.positions = mx.array(places, dtype=mx.int32)
        self.layers: list[int] = []

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        n = self.positions.shape[0]
        assert q.shape[0] == k.shape[0] == v.shape[0] == n
        self.layers.append(layer)
        outputs, at = [], 0
        for text, count in self._rows:
            new = [x[at : at + count].swapaxes(0, 1) for x in (k, v)]
            if layer in text.stored:
                pairs = zip(text.stored[layer], new, strict=True)
                new = [mx.concatenate(pair, axis=1) for pair in pairs]
            text.stored[layer] = new[0], new[1]
            query = q[at : at + count].swapaxes(0, 1)
            out = plain_attention(query[None], new[0][None], new[1][None], Causal(window))
            outputs.append(out[0].swapaxes(0, 1))
            at += count
        return mx.concatenate(outputs)
