"""The rows of a step -> the fastest attention over a pool for this device and precision."""

from collections.abc import Sequence

import mlx.core as mx

from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.gpu_attention import GPUAttention
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.run_views import RunViews
from mlxgpt.infer.paged.step_attention import StepAttention, StepRow


def step_attention(pool: Pool, block_size: int, rows: Sequence[StepRow]) -> StepAttention:
    """Return the attention of one step. The default device decides, and the pool's precision."""
    assert block_size == pool.block_size
    if mx.default_device().type == mx.DeviceType.gpu:
        return GPUAttention(pool, rows)
    if pool.dtype == mx.float32:
        return RunViews(pool, rows)
    return GatheredAttention(pool, rows)
