"""Logits -> the next token of each row: what every way of generating calls."""

from collections.abc import Sequence

import mlx.core as mx

from mlxgpt.infer.sampling.context import Context
from mlxgpt.infer.sampling.distribution import next_logprobs
from mlxgpt.infer.sampling.draw import draw
from mlxgpt.infer.sampling.filters import waits
from mlxgpt.infer.sampling.params import SamplingParams
from mlxgpt.infer.sampling.penalties import adjusted


def choose(logits: mx.array, contexts: Sequence[Context], uniforms: Sequence[float]) -> mx.array:
    """Return the id drawn for each row of logits (R, V), (R,) uint32, with R numbers from [0, 1).

    The same as `draw(next_logprobs(logits, contexts), uniforms)`; where all rows are greedy one
    argmax is enough. Not evaluated.
    """
    if contexts and all(context.params.temperature == 0 for context in contexts):
        assert logits.shape[0] == len(contexts), f"{logits.shape} logits, {len(contexts)} contexts"
        return mx.argmax(adjusted(logits, contexts), axis=-1).astype(mx.uint32)
    return draw(next_logprobs(logits, contexts), uniforms)


def can_look_ahead(params: SamplingParams) -> bool:
    """Whether `choose` neither has to know the token before, nor waits for the logits."""
    return not params.penalized and not waits(params)
