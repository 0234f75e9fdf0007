"""Fine-tuning: a model that is there, rows to learn, and what of it may change."""

from mlxgpt.train.sft.config import SFTConfig, TuningConfig
from mlxgpt.train.sft.settings import assemble_sft

__all__ = ["SFTConfig", "TuningConfig", "assemble_sft"]
