"""A distribution and a number from [0, 1) -> a token id."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxgpt import seeding
from mlxgpt.infer.sampling.exponential import exp
from mlxgpt.infer.sampling.params import SamplingParams
from mlxgpt.infer.sampling.row_sums import PIECE, pieces, running_sums

_COARSE = 2.0**24
"""The coarse part of a number from [0, 1) is a multiple of 1 / 2^24: exact in float32, below 1."""


def uniform(params: SamplingParams, purpose: str, index: int) -> float:
    """Return a number from [0, 1), one of 2^53, that seed, purpose and index decide.

    `index` is how many tokens of the text stand before the one that it is for.
    """
    return (seeding.derive(params.seed, purpose, index) >> 75) * 2.0**-53


def draw(logprobs: mx.array, uniforms: Sequence[float]) -> mx.array:
    """Return the first id of each row whose cumulative probability is above its number, (R,).

    `logprobs` (R, V) float32 as `next_logprobs` gives them, normalized or nearly; `uniforms` R
    numbers from [0, 1). Ids are uint32, never one of probability 0, the same alone and in a batch,
    and not waited for. Cumulative probabilities are off by what float32 rounds, about 1e-7, also
    over 150,000 ids: they are sums over pieces of 256 ids, and within one piece.
    """
    at = np.asarray(uniforms, dtype=np.float64)
    assert at.shape == (logprobs.shape[0],), f"{logprobs.shape} logprobs, {at.shape} numbers"
    assert ((at >= 0) & (at < 1)).all(), "a number to draw with is not in [0, 1)"
    if not len(at):
        return mx.zeros((0,), dtype=mx.uint32)
    # float32 alone would round to 1, and knows but 2^24 numbers near it.
    coarse = np.floor(at * _COARSE) / _COARSE
    parts = (mx.array(x.astype(np.float32))[:, None] for x in (coarse, at - coarse))
    masses, sums = pieces(exp(logprobs))
    piece, rest = _find(sums, *parts)
    inside = mx.take_along_axis(masses, piece[..., None], axis=1)[:, 0]
    place, _ = _find(inside, rest, mx.zeros_like(rest))
    return (piece * PIECE + place)[:, 0].astype(mx.uint32)


def _find(masses: mx.array, coarse: mx.array, fine: mx.array) -> tuple[mx.array, mx.array]:
    """Find where coarse + fine, (R, 1) each, falls into rows of masses (R, n) laid side by side.

    Return the place, (R, 1) int32, and how far into its mass, (R, 1) in [0, 1).
    """
    ends = mx.cummax(running_sums(masses), axis=-1)  # rounding must not let them fall
    ends = ends / ends[:, -1:]
    places = mx.arange(masses.shape[-1], dtype=mx.int32)
    # Where rounding leaves nothing above the number, the last place with any mass is taken.
    last = mx.where(masses > 0, places, -1).max(axis=-1, keepdims=True)
    above = (masses > 0) & ((ends - coarse > fine) | (places == last))
    place = mx.argmax(above, axis=-1, keepdims=True).astype(mx.int32)
    end = mx.take_along_axis(ends, place, axis=-1)
    begin = mx.take_along_axis(ends, mx.maximum(place - 1, 0), axis=-1) * (place > 0)
    into = ((coarse - begin) + fine) / (end - begin)
    return place, mx.clip(into, 0.0, 1 - 1 / _COARSE)
