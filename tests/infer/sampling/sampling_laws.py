"""The distribution by its definition, in float64, and how far counts may lie from one."""

from typing import Any

import mlx.core as mx
import numpy as np

from mlxgpt.infer.sampling import Context, SamplingParams, next_logprobs


def by_definition(logits: list[float], params: SamplingParams) -> np.ndarray | None:
    """Return the distribution in float64, one filter after the other.

    None where a token lies so near the edge of a filter that float32 may put it on either side.
    """
    x = np.array(logits, dtype=np.float64)
    if params.temperature == 0:
        return np.eye(len(x))[int(np.argmax(x))]
    p = np.exp((x - x.max()) / params.temperature)
    p /= p.sum()
    if params.top_k is not None and params.top_k < len(p):
        p = np.where(p >= np.sort(p)[::-1][params.top_k - 1] * (1 - 1e-9), p, 0)
        p /= p.sum()
    if params.top_p is not None and params.top_p < 1:
        order = np.argsort(-p, kind="stable")
        mass, kept = 0.0, 0.0
        for i in order:
            if i != order[0] and abs(mass - params.top_p) < 1e-4:
                return None
            if i == order[0] or mass < params.top_p:
                kept = p[i]
            mass += p[i]
        p = np.where(p >= kept * (1 - 1e-9), p, 0)
        p /= p.sum()
    if params.min_p:
        share = p / p.max()
        if (abs(share - params.min_p) < 1e-4 * params.min_p).any() and params.min_p < 1:
            return None
        p = np.where(share >= params.min_p * (1 - 1e-9), p, 0)
        p /= p.sum()
    return p


def alone(**settings: Any) -> Context:
    """A row with nothing before it."""
    return Context(SamplingParams(**settings), [], [])


def distribution(logits: list[float], **settings: Any) -> np.ndarray:
    return np.exp(np.array(next_logprobs(mx.array([logits]), [alone(**settings)]))[0])


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    kept = expected > 0
    assert counts[~kept].sum() == 0
    return float(((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum())


def chi_square_limit(cases: int) -> float:
    """What chance passes once in 30,000 times, of that many cases (Wilson and Hilferty, 1931)."""
    free = cases - 1
    return free * (1 - 2 / (9 * free) + 4 * np.sqrt(2 / (9 * free))) ** 3
