"""Logits -> the distribution that is sampled from -> a token id.

The filters act in the order temperature, top-k, top-p, min-p, as in transformers. One function
gives the exact distribution; everything that draws, draws from it.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlxgpt import seeding
from mlxgpt.config import require


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen. Raises `ConfigError` for a value out of range."""

    temperature: float = 1.0
    """Divides the logits; 0 is greedy: the likeliest token, the lowest id among equals."""
    top_k: int | None = None
    """Keep the k likeliest tokens, and those that tie with the k-th."""
    top_p: float | None = None
    """Keep the smallest set of likeliest tokens whose mass reaches p (Holtzman et al., 2020)."""
    min_p: float | None = None
    """Keep tokens with at least this share of the likeliest one's probability."""
    max_tokens: int = 200
    """How many tokens to generate at most."""
    seed: int = 0
    """Decides every draw: token i of a text depends on (seed, i) and the distribution alone."""

    def __post_init__(self) -> None:
        require(
            0 <= self.temperature < float("inf"),
            f"'temperature' must be 0 or above; got {self.temperature}",
        )
        require(
            self.top_k is None or self.top_k >= 1, f"'top_k' must be at least 1; got {self.top_k}"
        )
        require(
            self.top_p is None or 0 < self.top_p <= 1,
            f"'top_p' must be above 0 and at most 1; got {self.top_p}",
        )
        require(
            self.min_p is None or 0 <= self.min_p <= 1,
            f"'min_p' must be between 0 and 1; got {self.min_p}",
        )
        require(self.max_tokens >= 0, f"'max_tokens' must be 0 or above; got {self.max_tokens}")


def sampling_logprobs(logits: mx.array, params: SamplingParams) -> mx.array:
    """Return the log of the distribution sampled from, (..., V) float32; -inf where it is 0.

    Computed in float32 whatever the logits are. Temperature 0 gives a one-hot distribution.
    """
    logits = logits.astype(mx.float32)
    if params.temperature == 0:
        best = mx.argmax(logits, axis=-1, keepdims=True)
        ids = mx.arange(logits.shape[-1])
        return mx.where(ids == best, 0.0, -float("inf"))
    # The highest becomes 0 first, so that a tiny temperature overflows to -inf only.
    logits = logits - logits.max(axis=-1, keepdims=True)
    logprobs = _normalize(logits / max(params.temperature, 1e-30))
    if params.top_k is not None and params.top_k < logits.shape[-1]:
        # MLX sorts upwards: the k-th largest is the k-th from the end.
        kth = mx.sort(logprobs, axis=-1)[..., -params.top_k, None]
        logprobs = _keep(logprobs, logprobs >= kth)
    if params.top_p is not None and params.top_p < 1:
        down = -mx.sort(-logprobs, axis=-1)
        before = mx.cumsum(mx.exp(down), axis=-1) - mx.exp(down)
        # The likeliest token stays at any p; equals of the last kept one stay with it.
        smallest = mx.where(before < params.top_p, down, float("inf")).min(axis=-1, keepdims=True)
        logprobs = _keep(logprobs, logprobs >= mx.minimum(smallest, down[..., :1]))
    if params.min_p:
        floor = logprobs.max(axis=-1, keepdims=True) + mx.log(mx.array(params.min_p))
        logprobs = _keep(logprobs, logprobs >= floor)
    return logprobs


def sample(logits: mx.array, params: SamplingParams, index: int) -> mx.array:
    """Draw token number `index` of a text from logits (1, V); returns its id, (1,) uint32."""
    if params.temperature == 0:
        return mx.argmax(logits, axis=-1).astype(mx.uint32)
    key = seeding.key(params.seed, "sample", index)
    return mx.random.categorical(sampling_logprobs(logits, params), key=key)


def _normalize(logits: mx.array) -> mx.array:
    # The largest is near 0, so no exp overflows. A product with ones, because on a CPU MLX adds one
    # number after the other: over 50,000 ids its logsumexp is off by 1e-3, this by 1e-5.
    return logits - mx.log(mx.exp(logits) @ mx.ones((logits.shape[-1], 1)))


def _keep(logprobs: mx.array, kept: mx.array) -> mx.array:
    return _normalize(mx.where(kept, logprobs, -float("inf")))
