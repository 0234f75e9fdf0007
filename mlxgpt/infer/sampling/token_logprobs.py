"""Logits and the ids chosen -> how likely the model held them, and what else it held likely."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import mlx.core as mx
import numpy as np

from mlxgpt.infer.sampling.distribution import log_softmax
from mlxgpt.infer.sampling.largest import k_largest


@dataclass(frozen=True)
class TokenLogprobs:
    """Natural logs of probabilities at the place of one token.

    They are those of the model, the softmax of its logits in float32: before biases, penalties,
    temperature and filters, which say how to choose, not how likely it was.
    """

    logprob: float
    """Of the token itself."""
    top: tuple[tuple[int, float], ...]
    """(id, log-probability) of the likeliest tokens, as many as were asked for, the likeliest first
    and the lowest id first among equals. The token itself may be one of them."""


class PendingLogprobs:
    """Log-probabilities that were asked for, not computed before they are read or evaluated."""

    def __init__(
        self, logits: mx.array, chosen: mx.array, alternatives: Sequence[int | None]
    ) -> None:
        """`logits` (R, V) as the model gives them, the ids `chosen` (R,), and for each row how many
        `alternatives` to report; None: nothing is wanted, and nothing computed for it."""
        assert logits.shape[0] == len(alternatives) == chosen.shape[0]
        self._alternatives = alternatives
        self._arrays: list[mx.array] = []
        rows = [i for i, count in enumerate(alternatives) if count is not None]
        if not rows:
            return
        if len(rows) < len(alternatives):
            logits, chosen = logits[mx.array(rows)], chosen[mx.array(rows)]
        logprobs = log_softmax(logits)
        most = min(max(count for count in alternatives if count is not None), logits.shape[-1])
        self._arrays.append(mx.take_along_axis(logprobs, chosen[:, None], axis=-1))
        if most:
            ids = _likeliest(logprobs, most)
            self._arrays += [ids, mx.take_along_axis(logprobs, ids, axis=-1)]

    @property
    def arrays(self) -> list[mx.array]:
        """What there is to evaluate."""
        return self._arrays

    def read(self) -> list[TokenLogprobs | None]:
        """Wait for the values; return one for each row, None where nothing was wanted."""
        if not self._arrays:
            return [None] * len(self._alternatives)
        own, *top = (np.array(array).tolist() for array in self._arrays)
        read: list[TokenLogprobs | None] = []
        row = 0
        for count in self._alternatives:
            if count is None:
                read.append(None)
                continue
            pairs = list(zip(top[0][row], top[1][row], strict=True))[:count] if top else []
            read.append(TokenLogprobs(own[row][0], tuple(pairs)))
            row += 1
        return read


def chosen_logprobs(
    logits: mx.array, wanted: Sequence[tuple[int | None, int]], chosen: Sequence[Sequence[int]]
) -> list[list[TokenLogprobs] | None]:
    """Return one for each token of each text, None for a text that wants none.

    A text says how many alternatives it wants, and at which row of `logits` (M, V) the one before
    its first token is; its `chosen` tokens follow one another from there.
    """
    places: list[int] = []
    ids: list[int] = []
    alternatives: list[int | None] = []
    for (count, begin), tokens in zip(wanted, chosen, strict=True):
        if count is not None:
            places += range(begin, begin + len(tokens))
            ids += tokens
            alternatives += [count] * len(tokens)
    if not places:
        return [None if count is None else [] for count, _ in wanted]
    values = iter(PendingLogprobs(logits[mx.array(places)], mx.array(ids), alternatives).read())
    return [
        None if count is None else [one for one in islice(values, len(tokens)) if one is not None]
        for (count, _), tokens in zip(wanted, chosen, strict=True)
    ]


def _likeliest(logprobs: mx.array, count: int) -> mx.array:
    """Return the ids of the `count` highest of each row (R, V); of equals the lower ids first."""
    lowest = k_largest(logprobs, count)[:, -1:]
    size = logprobs.shape[-1]
    above, equal = ((x).astype(mx.float32) for x in (logprobs > lowest, logprobs == lowest))
    # What is above the lowest comes before what equals it, and of both the lower ids first. Whole
    # numbers below 2^24 are exact in float32.
    order = (2 * above + equal) * size - mx.arange(size, dtype=mx.float32)
    found = (-k_largest(order, count)).astype(mx.int32) % size
    values = mx.take_along_axis(logprobs, found, axis=-1)
    # `found` is in that order already, but what is above the lowest is not sorted by value yet.
    return mx.take_along_axis(found, mx.argsort(_ranks(values, found), axis=-1), axis=-1)


def _ranks(values: mx.array, ids: mx.array) -> mx.array:
    """Return how many of a row (R, n) come before each: the higher ones, and equals of a lower id.

    (Whether MLX leaves equals in their order when it sorts depends on the device.)
    """
    this, other = values[:, :, None], values[:, None, :]
    first = (other == this) & (ids[:, None, :] < ids[:, :, None])
    return ((other > this) | first).sum(axis=-1)
