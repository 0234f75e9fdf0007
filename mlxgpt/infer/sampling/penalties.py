"""Logits -> logits after biases and penalties: wishes, and what the text has already."""

from collections.abc import Sequence
from itertools import chain

import mlx.core as mx
import numpy as np

from mlxgpt.config import require
from mlxgpt.infer.sampling.context import Context

_MOST = 1e30
"""Larger values act as this one, so that all logits stay finite in float32."""


def adjusted(logits: mx.array, contexts: Sequence[Context]) -> mx.array:
    """Return logits (R, V) with the biases and penalties of each row, float32 if there are any.

    `logit_bias` is added first. Then the logits of all tokens of prompt and text are divided by
    `repetition_penalty` if positive, and multiplied by it otherwise (Keskar et al., 2019, as in
    transformers). At last `presence_penalty` + count * `frequency_penalty` is taken from the logits
    of tokens of the text (OpenAI's formula). Ids beyond V in a prompt cannot be chosen, and do not
    matter. Raises `ConfigError` for a bias of an id beyond V.
    """
    vocab = logits.shape[-1]
    places, changes = [], []
    for row, context in enumerate(contexts):
        if context.params.penalized or context.params.logit_bias:
            ids, change = _changes(context, vocab)
            places.append(row * vocab + ids)
            changes.append(change)
    if not places:
        return logits
    at = mx.array(np.concatenate(places))
    bias, factor, minus = (mx.array(x) for x in np.concatenate(changes, axis=1))
    flat = logits.astype(mx.float32).reshape(-1)
    old = flat[at] + bias
    flat[at] = mx.where(old > 0, old / factor, old * factor) - minus
    return flat.reshape(logits.shape)


def _changes(context: Context, vocab: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids (m,) that change, and for each its bias, factor and subtrahend, (3, m)."""
    params = context.params
    biases = np.array([i for i in params.logit_bias if i < vocab], dtype=np.int64)
    require(
        len(biases) == len(params.logit_bias),
        f"'logit_bias' names id {max(params.logit_bias, default=0)}; the model has ids 0 to "
        f"{vocab - 1}",
    )
    text = _ids(context.generated_ids, vocab) if params.penalized else _ids((), vocab)
    written, counts = np.unique(text, return_counts=True)
    seen = written
    if params.repetition_penalty != 1:
        seen = np.union1d(written, _ids(context.prompt_ids, vocab))
    ids = np.union1d(biases, seen)
    bias, factor, minus = np.zeros(len(ids)), np.ones(len(ids)), np.zeros(len(ids))
    bias[np.searchsorted(ids, biases)] = list(params.logit_bias.values())
    factor[np.searchsorted(ids, seen)] = max(params.repetition_penalty, 1 / _MOST)
    presence, frequency = np.clip(
        [params.presence_penalty, params.frequency_penalty], -_MOST, _MOST
    )
    minus[np.searchsorted(ids, written)] = presence + frequency * counts
    return ids, np.clip([bias, factor, minus], -_MOST, _MOST).astype(np.float32)


def _ids(ids: Sequence[int], vocab: int) -> np.ndarray:
    array = np.fromiter(chain(ids), dtype=np.int64, count=len(ids))
    assert not len(array) or array.min() >= 0, "a token id is negative"
    return array[array < vocab]
