"""What a query may look at: itself and what comes before, within limits; a mask, or by blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx


@dataclass(frozen=True)
class Causal:
    """Queries stand at the end of their keys; each sees its own key and those before it."""

    window: int | None = None
    """How many keys, its own included, a query looks back at most; None: all."""
    segments: mx.array | None = None
    """(B, S): a query sees keys of its own number only; None: of all."""

    def mask(self, queries: int, keys: int) -> mx.array | Literal["causal"] | None:
        """Return the mask as MLX takes it: boolean, true where a query looks; None: at everything.

        Boolean masks can be broadcast to (B, H, `queries`, `keys`).
        """
        if self.segments is not None or (self.window is not None and keys > self.window):
            return self._of(keys - queries, keys, 0)
        return "causal" if queries > 1 else None

    def array(self, queries: int, keys: int) -> mx.array | None:
        """Return the same with `"causal"` written out."""
        plain = self.mask(queries, keys) is None
        return None if plain else self._of(keys - queries, keys, 0)

    def blocks(self, queries: int, keys: int, size: int) -> Iterator[tuple[slice, slice, mx.array]]:
        """Cut the queries into blocks of at most `size`, each with all the keys that it sees.

        Yields (queries, keys, boolean mask between the two), first queries first.
        """
        before = keys - queries
        for start in range(before, keys, size):
            stop = min(start + size, keys)
            low = 0 if self.window is None else max(0, start - self.window + 1)
            yield slice(start - before, stop - before), slice(low, stop), self._of(start, stop, low)

    def _of(self, start: int, stop: int, low: int) -> mx.array:
        """Return the mask between queries `start` to `stop` and keys `low` to `stop`."""
        query, key = mx.arange(start, stop)[:, None], mx.arange(low, stop)[None, :]
        seen = key <= query
        if self.window is not None and stop - low > self.window:
            seen &= key > query - self.window
        if self.segments is not None:
            own, others = self.segments[:, start:stop, None], self.segments[:, None, low:stop]
            seen = (seen & (own == others))[:, None]
        return seen


def narrower(a: int | None, b: int | None) -> int | None:
    """Return the smaller of two windows; None is one without an end."""
    return b if a is None else a if b is None else min(a, b)
