"""Prompt ids -> generated ids, text ids -> how likely they are. Knows no tokenizer."""

from mlxgpt.infer.generate import Generated, generate, generate_plain
from mlxgpt.infer.kv_cache import KVCache
from mlxgpt.infer.perplexity import Score, score, window_sizes
from mlxgpt.infer.sampling import SamplingParams, sample, sampling_logprobs

__all__ = [
    "Generated",
    "KVCache",
    "SamplingParams",
    "Score",
    "generate",
    "generate_plain",
    "sample",
    "sampling_logprobs",
    "score",
    "window_sizes",
]
