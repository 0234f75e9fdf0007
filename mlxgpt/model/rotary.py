"""Rotary position embedding: pairs of numbers turned by an angle that grows with position."""

import mlx.core as mx

from mlxgpt.model.rope_scaling import RopeScaling, dynamic_theta, frequencies


class Rotary:
    """RoPE (Su et al., 2021), half-split as in Llama checkpoints: pairs are (i, i + D/2)."""

    def __init__(self, head_dim: int, theta: float, scaling: RopeScaling | None = None) -> None:
        self.head_dim = head_dim
        self.theta = theta
        self.scaling = scaling
        self._dynamic = scaling is not None and scaling.rope_type == "dynamic"
        self._by_parts = scaling is not None and scaling.rope_type in ("llama3", "yarn")
        # MLX takes the positions that a radian needs, one number a pair.
        self._spans = mx.array(1 / frequencies(head_dim, theta, scaling), dtype=mx.float32)

    def __call__(self, x: mx.array, offset: int | mx.array) -> mx.array:
        """Rotate x (B, H, T, D); `offset` as `Attend.offset` gives it: (), (B,) or (B, T)."""
        if self.scaling is not None and self.scaling.query_scale != 1:
            x = x * self.scaling.query_scale
        if self._dynamic and isinstance(offset, mx.array):
            return self._by_length(x, offset)
        if isinstance(offset, mx.array) and offset.ndim == 2:
            b, h, t, d = x.shape
            each = x.transpose(0, 2, 1, 3).reshape(b * t, h, 1, d)
            turned = self._rotate(each, offset.reshape(-1))
            return turned.reshape(b, t, h, d).transpose(0, 2, 1, 3)
        return self._rotate(x, offset)

    def _rotate(self, x: mx.array, offset: int | mx.array) -> mx.array:
        base, scale, spans = self.theta, 1.0, None
        if self.scaling is not None and self.scaling.rope_type == "linear":
            scale = 1 / self.scaling.factor
        if self._by_parts:
            spans = self._spans
        elif self._dynamic:
            assert self.scaling is not None
            assert isinstance(offset, int)
            length = offset + x.shape[2]
            base = dynamic_theta(self.head_dim, self.theta, self.scaling, length)
        return mx.fast.rope(
            x,
            self.head_dim,
            traditional=False,
            base=None if spans is not None else base,
            scale=scale,
            offset=offset,
            freqs=spans,
        )

    def _by_length(self, x: mx.array, offset: mx.array) -> mx.array:
        """Rotate rows that each have a base of their own, by the length of their text."""
        assert self.scaling is not None
        t, d = x.shape[2], self.head_dim
        positions = offset if offset.ndim == 2 else offset[:, None] + mx.arange(t)  # (B, T)
        length = positions.max(axis=1, keepdims=True) + 1
        ratio = mx.maximum(length, self.scaling.original) / self.scaling.original
        growth = self.scaling.factor * ratio - (self.scaling.factor - 1)
        base = self.theta * growth ** (d / max(d - 2, 1))  # (B, 1)
        spans = base[..., None] ** (mx.arange(0, d, 2) / d)  # (B, 1, D/2)
        angles = (positions[..., None] / spans)[:, None]  # (B, 1, T, D/2)
        cosine, sine = mx.cos(angles).astype(x.dtype), mx.sin(angles).astype(x.dtype)
        first, second = x[..., : d // 2], x[..., d // 2 :]
        return mx.concatenate(
            [first * cosine - second * sine, second * cosine + first * sine], axis=-1
        )
