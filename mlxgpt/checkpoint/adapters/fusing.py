"""A stream of weights and an adapter -> the stream of the weights that both amount to."""

from collections.abc import Callable, Iterator
from typing import cast

import mlx.core as mx

from mlxgpt.checkpoint.adapters.adapter import Adapter
from mlxgpt.checkpoint.adapters.tensors import listed
from mlxgpt.errors import CheckpointError

Stored = Callable[[str, mx.array, mx.Dtype], mx.array]


class Rounding:
    """Counts what an adapter loses when fused weights are stored in few bits.

    A change far smaller than a weight falls between two numbers of low precision, and is gone.
    `stored` turns (name, float32 weight, its dtype before) into what is kept of it; None: the
    weight in the dtype that it had.
    """

    def __init__(self, stored: Stored | None = None) -> None:
        self._stored = stored or (lambda _, weight, dtype: weight.astype(dtype))
        self.changed = 0
        """Weights that the adapter changes, in float32."""
        self.lost = 0
        """Those of them that are unchanged in the lower precision."""

    @property
    def fraction(self) -> float:
        """The share of the changes that is lost; 0 without any."""
        return self.lost / self.changed if self.changed else 0.0

    def count(self, name: str, before: mx.array, after: mx.array) -> None:
        """Take one weight into account."""
        whole = before.astype(mx.float32)
        kept = self._stored(name, whole, before.dtype) == self._stored(name, after, before.dtype)
        changed = whole != after
        lost = changed & kept
        self.changed += cast(int, changed.sum().item())
        self.lost += cast(int, lost.sum().item())


def fused(
    weights: Iterator[tuple[str, mx.array]], adapter: Adapter, rounding: Rounding | None = None
) -> Iterator[tuple[str, mx.array]]:
    """Yield (name, array) of all weights, with the adapter in those that it changes.

    `weights` are not quantized (`plain_weights`), and named as in `GPT.weights`. What the adapter
    changes is computed and yielded in float32, the rest as it comes. Raises `CheckpointError` at
    the end if the adapter has parts for which there was no weight; `check_fit` tells it before.
    """
    left = {f"{path}.weight" for path in adapter.modules} | set(adapter.weights)
    for name, weight in weights:
        if name not in left:
            yield name, weight
            continue
        left.discard(name)
        result = adapter.weights.get(name, weight).astype(mx.float32)
        path = name.removesuffix(".weight")
        if path in adapter.modules:
            result = adapter.modules[path].added_to(result, path)
        mx.eval(result)
        if rounding is not None:
            rounding.count(name, weight, result)
        yield name, result
    if left:
        raise CheckpointError(f"{adapter.source}: not in this model: {listed(left)}")
