"""Keys and values of many texts in one pool of blocks."""

from mlxgpt.infer.paged.blocks import Blocks, BlockTable, Copy, OutOfBlocks
from mlxgpt.infer.paged.by_device import step_attention
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.prefix_index import PrefixIndex
from mlxgpt.infer.paged.step_attention import StepAttention, StepRow

__all__ = [
    "BlockTable",
    "Blocks",
    "Copy",
    "OutOfBlocks",
    "Pool",
    "PrefixIndex",
    "StepAttention",
    "StepRow",
    "step_attention",
]
