"""Prompt ids -> generated ids. The engine knows no tokenizer."""

from mlxgpt.infer.generate import Generated, generate, generate_plain
from mlxgpt.infer.kv_cache import KVCache
from mlxgpt.infer.sampling import SamplingParams, sample, sampling_logprobs

__all__ = [
    "Generated",
    "KVCache",
    "SamplingParams",
    "generate",
    "generate_plain",
    "sample",
    "sampling_logprobs",
]
