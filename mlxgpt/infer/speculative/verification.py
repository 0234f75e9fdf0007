"""Guesses and the model's logits after each of them -> the tokens that the text goes on with.

A guess that was proposed for certain, or for a greedy text, is compared with the token that plain
decoding takes at its place: what comes out is what plain decoding writes, to the token. A guess
that was drawn from a distribution q is kept with probability min(1, p / q), and in the place of the
first one that is not, a token is drawn from what p has more than q: what comes out has exactly the
distribution p (Leviathan et al., 2023, algorithm 1; Chen et al., 2023).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

import mlx.core as mx
import numpy as np

from mlxgpt.config import require
from mlxgpt.infer.sampling import (
    Context,
    SamplingParams,
    choose,
    draw,
    next_logprobs,
    uniform,
)
from mlxgpt.infer.sampling.exponential import exp
from mlxgpt.infer.sampling.row_sums import row_sums
from mlxgpt.infer.speculative.proposer import Draft

_NOTHING = 1e-30
"""A residual of less mass than this is rounding, and is not normalized."""


@dataclass(frozen=True)
class Guessed:
    """One text of a step, and the guesses to be checked; without any it is decoded plainly."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    generated_ids: Sequence[int]
    """Written after the prompt so far, without the guesses."""
    draft: Draft

    @property
    def certain(self) -> bool:
        """Whether the guesses are compared with the tokens of plain decoding."""
        guesses = self.draft
        return guesses.logprobs is None or not guesses.token_ids or self.params.temperature == 0


def verify(rows: Sequence[Guessed], logits: mx.array) -> list[list[int]]:
    """Return for each text the guesses that are kept, and the token that follows them.

    `logits` (M, V) are those after the last true token of a text and after each of its k guesses,
    k + 1 rows for each text, one text after the other. V may be cut to the ids that can be drawn;
    distributions of guesses must be over as many. MLX is waited for twice at most.
    """
    starts = [0, *accumulate(len(row.draft.token_ids) + 1 for row in rows)]
    assert logits.shape[0] == starts[-1], f"{logits.shape} logits, {starts[-1]} rows to verify"
    if not rows:
        return []
    places: dict[bool, list[int]] = {True: [], False: []}
    for row, (start, end) in zip(rows, pairwise(starts), strict=True):
        places[row.certain] += range(start, end)
    certain, drawn = [row for row in rows if row.certain], [row for row in rows if not row.certain]
    agreed = iter(_agreed(certain, _rows(logits, places[True])) if certain else [])
    accepted = iter(_accepted(drawn, _rows(logits, places[False])) if drawn else [])
    return [next(agreed if row.certain else accepted) for row in rows]


def residual_logprobs(p: mx.array, q: mx.array) -> mx.array:
    """Return the log of max(0, p - q), normalized, (R, V), for the logs of two distributions.

    Where the two agree but for rounding there is nothing to normalize: it is p then. To come there
    is as unlikely as the two differ little.
    """
    more = mx.maximum(exp(p) - exp(q), 0)
    mass = row_sums(more)
    return mx.where(mass > _NOTHING, mx.log(more / mx.maximum(mass, _NOTHING)), p)


def _contexts(rows: Sequence[Guessed]) -> list[Context]:
    """Return what stands before each place: the guesses up to it belong to the text there."""
    contexts = []
    for row in rows:
        written = list(row.generated_ids)
        for count in range(len(row.draft.token_ids) + 1):
            before = written + row.draft.token_ids[:count]
            contexts.append(Context(row.params, row.prompt_ids, before))
    return contexts


def _agreed(rows: Sequence[Guessed], logits: mx.array) -> list[list[int]]:
    """Return the tokens of plain decoding, to the first one that was not guessed."""
    uniforms = [
        uniform(row.params, "sample", len(row.generated_ids) + i)
        for row in rows
        for i in range(len(row.draft.token_ids) + 1)
    ]
    ids = iter(np.array(choose(logits, _contexts(rows), uniforms)).tolist())
    every = []
    for row in rows:
        tokens = list(islice(ids, len(row.draft.token_ids) + 1))
        same = [a == b for a, b in zip(tokens, row.draft.token_ids, strict=False)]
        every.append(tokens[: [*same, False].index(False) + 1])
    return every


def _accepted(rows: Sequence[Guessed], logits: mx.array) -> list[list[int]]:
    """Return the guesses that are kept, each by chance, and a token after them."""
    target = next_logprobs(logits, _contexts(rows))
    q = _proposals(rows, logits.shape[-1])
    places, start = [], 0
    for row in rows:
        places += range(start, start + len(row.draft.token_ids))
        start += len(row.draft.token_ids) + 1
    guesses = mx.array([token for row in rows for token in row.draft.token_ids])
    of_guesses = mx.stack([target[mx.array(places), guesses], q[mx.arange(len(places)), guesses]])
    p_guess, q_guess = (iter(shares) for shares in np.array(mx.exp(of_guesses)).tolist())
    kept = [_keep(row, p_guess, q_guess) for row in rows]

    # What follows is computed for one place of each text only.
    after, proposed, uniforms, first = [], [], [], 0
    for i, (row, count) in enumerate(zip(rows, kept, strict=True)):
        made = len(row.draft.token_ids)
        after.append(first + i + count)  # each text before has a row more in `target`
        proposed.append(first + min(count, made - 1))
        purpose = "residual" if count < made else "sample"
        uniforms.append(uniform(row.params, purpose, len(row.generated_ids) + count))
        first += made
    p = _rows(target, after)
    refused = mx.array([k < len(row.draft.token_ids) for row, k in zip(rows, kept, strict=True)])
    source = mx.where(refused[:, None], residual_logprobs(p, _rows(q, proposed)), p)
    following = np.array(draw(source, uniforms)).tolist()
    return [
        [*row.draft.token_ids[:count], token]
        for row, count, token in zip(rows, kept, following, strict=True)
    ]


def _keep(row: Guessed, p_guess: Iterator[float], q_guess: Iterator[float]) -> int:
    """Return how many guesses are kept: each with probability min(1, p / q), given those before."""
    made = len(row.draft.token_ids)
    shares = zip(list(islice(p_guess, made)), list(islice(q_guess, made)), strict=True)
    for count, (p, q) in enumerate(shares):
        if not uniform(row.params, "accept", len(row.generated_ids) + count) * q < p:
            return count
    return made


def _proposals(rows: Sequence[Guessed], vocab: int) -> mx.array:
    """Return the distributions that the guesses were drawn from, one after the other, (R, V)."""
    every = []
    for row in rows:
        logprobs, expected = row.draft.logprobs, (len(row.draft.token_ids), vocab)
        assert logprobs is not None
        require(
            logprobs.shape == expected,
            f"a draft of {expected[0]} tokens needs logprobs of shape {expected}, over the "
            f"ids that the model has; got {logprobs.shape}",
        )
        every.append(logprobs)
    return mx.concatenate(every)


def _rows(x: mx.array, places: list[int]) -> mx.array:
    """Return these rows; not a copy if they are all there is."""
    return x if places == list(range(x.shape[0])) else x[mx.array(places)]
