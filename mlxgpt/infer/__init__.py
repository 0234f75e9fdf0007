"""Prompt ids -> generated ids, text ids -> how likely they are. Knows no tokenizer."""

from mlxgpt.infer.generate import Generated, generate, generate_plain
from mlxgpt.infer.kv_cache import KVCache
from mlxgpt.infer.perplexity import Score, score, window_sizes
from mlxgpt.infer.sampling import Context, SamplingParams, TokenLogprobs, choose, next_logprobs

__all__ = [
    "Context",
    "Generated",
    "KVCache",
    "SamplingParams",
    "Score",
    "TokenLogprobs",
    "choose",
    "generate",
    "generate_plain",
    "next_logprobs",
    "score",
    "window_sizes",
]
