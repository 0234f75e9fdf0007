"""A model's sizes and this machine's memory -> whether it runs here, and over how long a text."""

from dataclasses import dataclass

import mlx.core as mx

from mlxgpt.checkpoint.summary import Summary
from mlxgpt.machine.memory import total_memory


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a model needs on this machine; what other programs take is not counted."""

    memory_bytes: int | None
    """What there is: on a GPU what MLX recommends to stay below, else all memory; None: unknown."""
    weights_bytes: int
    """What the weights take here: as stored on a GPU, in float32 on a CPU."""
    cache_bytes_per_token: int | None
    cache_bytes: int | None
    """What the cache takes for a text of the whole context."""

    @property
    def fits(self) -> bool | None:
        """Whether the weights fit, with the cache of the whole context if it is known."""
        if self.memory_bytes is None:
            return None
        return self.weights_bytes + (self.cache_bytes or 0) <= self.memory_bytes

    @property
    def tokens(self) -> int | None:
        """For how many tokens there is room beside the weights; 0 if they do not fit."""
        if self.memory_bytes is None or self.cache_bytes_per_token is None:
            return None
        return max(0, self.memory_bytes - self.weights_bytes) // self.cache_bytes_per_token


def fit_here(summary: Summary) -> Fit:
    """Return what `summary`'s model needs on the device that MLX would use now."""
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    limit = mx.device_info().get("max_recommended_working_set_size") if on_gpu else None
    sizes = summary.footprint
    number = sizes.number_bytes if on_gpu else 4
    per_token, whole = summary.kv_numbers_per_token, summary.kv_numbers
    return Fit(
        memory_bytes=int(limit) if limit else total_memory(),
        weights_bytes=sizes.memory_bytes if on_gpu else sizes.float32_bytes,
        cache_bytes_per_token=None if per_token is None else per_token * number,
        cache_bytes=None if whole is None else whole * number,
    )
