"""Dropout as a value that is handed in: a rate and a key. Without one there is no dropout.

So evaluation cannot forget to switch it off, and a mask is a function of its key and place.
"""

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True)
class Dropout:
    """Inverted dropout (Srivastava et al., 2014): zero with probability `rate`, scale the rest."""

    rate: float
    key: mx.array
    adapter_rate: float = 0.0
    """Rate on what low-rank parts are fed with (Hu et al., 2021); their base sees all of it."""

    def __call__(self, x: mx.array, place: int) -> mx.array:
        """Drop from x; `place` names the use inside the network, so that no two share a mask."""
        if not self.rate:
            return x
        kept = 1.0 - self.rate
        # A key is two words; counting up one of them gives independent streams (Threefry).
        key = self.key + mx.array([0, place + 1], dtype=mx.uint32)
        mask = mx.random.bernoulli(kept, x.shape, key=key)
        return mx.where(mask, x * (1.0 / kept), mx.zeros_like(x))

    def of_adapters(self, part: int, use: int = 0) -> "Dropout":
        """Return the dropout of the low-rank changes in part number `part` of the network.

        The other word of the key is counted up, so that it shares no mask with this one. `use`
        tells several calls of the same part from one another; a part has less than 2^16 modules.
        """
        step = mx.array([part + 1, use << 16], dtype=mx.uint32)
        return Dropout(self.adapter_rate, self.key + step)
