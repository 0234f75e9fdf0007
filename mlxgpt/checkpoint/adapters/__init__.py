"""Adapters on disk, in mlx-lm's form or PEFT's <-> a network that computes with them."""

from mlxgpt.checkpoint.adapters.adapter import Adapter, LowRank
from mlxgpt.checkpoint.adapters.attaching import attach, check_fit
from mlxgpt.checkpoint.adapters.files import read_adapter, write_adapter
from mlxgpt.checkpoint.adapters.fusing import Rounding, fused

__all__ = [
    "Adapter",
    "LowRank",
    "Rounding",
    "attach",
    "check_fit",
    "fused",
    "read_adapter",
    "write_adapter",
]
