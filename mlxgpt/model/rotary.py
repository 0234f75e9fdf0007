"""Rotary position embedding: pairs of numbers turned by an angle that grows with position."""

import mlx.core as mx


class Rotary:
    """RoPE (Su et al., 2021), half-split as in Llama checkpoints: pairs are (i, i + D/2)."""

    def __init__(self, head_dim: int, theta: float) -> None:
        self.head_dim = head_dim
        self.theta = theta

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        """Rotate x (B, H, T, D); `offset` as `Attend.offset` gives it: (), (B,) or (B, T)."""
        if isinstance(offset, mx.array) and offset.ndim == 2:
            b, h, t, d = x.shape
            each = x.transpose(0, 2, 1, 3).reshape(b * t, h, 1, d)
            turned = self._rotate(each, offset.reshape(-1))
            return turned.reshape(b, t, h, d).transpose(0, 2, 1, 3)
        return self._rotate(x, offset)

    def _rotate(self, x: mx.array, offset: int | mx.array) -> mx.array:
        return mx.fast.rope(
            x, self.head_dim, traditional=False, base=self.theta, scale=1.0, offset=offset
        )
