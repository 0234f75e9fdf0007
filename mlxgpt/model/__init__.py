"""The network: ids -> logits. Knows nothing of text, files, training or scheduling."""

from mlxgpt.model.attend import Attend, CausalAttend, SegmentAttend
from mlxgpt.model.causal import Causal, narrower
from mlxgpt.model.config import GPTConfig
from mlxgpt.model.cost import (
    kv_bytes_per_token,
    non_embedding,
    num_parameters,
    train_flops_per_token,
)
from mlxgpt.model.dropout import Dropout
from mlxgpt.model.gpt import GPT
from mlxgpt.model.initial_weights import init_weights
from mlxgpt.model.kernels import attention, cross_entropy
from mlxgpt.model.presets import PRESETS, preset
from mlxgpt.model.quantization import Quantization, quantize_modules
from mlxgpt.model.rope_scaling import RopeScaling
from mlxgpt.model.weight_shapes import weight_shapes

__all__ = [
    "GPT",
    "PRESETS",
    "Attend",
    "Causal",
    "CausalAttend",
    "Dropout",
    "GPTConfig",
    "Quantization",
    "RopeScaling",
    "SegmentAttend",
    "attention",
    "cross_entropy",
    "init_weights",
    "kv_bytes_per_token",
    "narrower",
    "non_embedding",
    "num_parameters",
    "preset",
    "quantize_modules",
    "train_flops_per_token",
    "weight_shapes",
]
