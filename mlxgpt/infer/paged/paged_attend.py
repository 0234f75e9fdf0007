"""A network's `Attend` over a step of a paged cache: the N tokens are one row (1, N)."""

import mlx.core as mx

from mlxgpt.infer.paged.step_attention import StepAttention
from mlxgpt.model import narrower


class PagedAttend:
    """Lets `GPT` run a step: `model(ids[None], PagedAttend(attention, model.config.context))`.

    `window` is how many tokens back all layers look at most; a layer's own may be narrower.
    """

    def __init__(self, attention: StepAttention, window: int | None = None) -> None:
        self._attention, self._window = attention, window
        self._positions = attention.positions[None]

    def offset(self, layer: int) -> mx.array:  # noqa: ARG002
        return self._positions

    def __call__(
        self, layer: int, q: mx.array, k: mx.array, v: mx.array, window: int | None
    ) -> mx.array:
        assert q.shape[0] == 1, "a step is one row of tokens"
        narrowest = narrower(self._window, window)
        # (1, H, N, D) -> (N, H, D)
        flat = q[0].swapaxes(0, 1), k[0].swapaxes(0, 1), v[0].swapaxes(0, 1)
        out = self._attention(layer, *flat, narrowest)
        return out.swapaxes(0, 1)[None]
