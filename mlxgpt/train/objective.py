"""Network and batch -> loss: cross-entropy of the next token, weighted per token."""

from dataclasses import dataclass
from typing import NotRequired, TypedDict

import mlx.core as mx
import numpy as np

from mlxgpt.data import Batch
from mlxgpt.model import GPT, CausalAttend, Dropout, SegmentAttend
from mlxgpt.model.chunked_loss import chunked_nll, evaluated_nll, tokens_at_once, weighted_nll


class Inputs(TypedDict):
    """What a traced function is given of a batch; other shapes and numbers are traced anew."""

    input_ids: mx.array
    targets: mx.array
    loss_weights: mx.array
    segment_ids: NotRequired[mx.array]
    longest: NotRequired[int]
    """No segment is longer."""
    places: NotRequired[mx.array]
    """Those of the flattened batch that `targets` and `loss_weights` are of; else of all."""


_WORTH_IT = 3 / 4
"""Share of places with a target below which those are picked out before the head."""
_SIZES, _LONGEST = 8, 4
"""So many numbers of places, and lengths of the longest segment, batches of one shape have."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """How a batch becomes a loss. The same settings, network, batch and key give the same loss."""

    dropout: float = 0.0
    """Rate on the embedding and on what each block adds."""
    adapter_dropout: float = 0.0
    """Rate on what a low-rank change is fed with."""
    checkpoint_layers: bool = False
    """Compute each block again on the way back instead of keeping what is inside it."""
    logits_chunk: int | None = None
    """Tokens whose logits exist at once, at most; None: as many as fit into 64 MiB of float32."""

    def inputs(self, rows: Batch) -> Inputs:
        """Return the arrays of `rows` that `nll` needs; made outside of any traced function.

        Where few places count, `places` are their numbers in the flattened batch, filled up with
        the first at weight 0, and targets and weights are theirs alone.
        """
        targets, weights = rows.targets, rows.loss_weights
        places = _counting(weights)
        if places is not None:
            number = np.count_nonzero(weights)
            targets, weights = targets.reshape(-1)[places], weights.reshape(-1)[places]
            weights[number:] = 0.0
        inputs = Inputs(
            input_ids=mx.array(rows.input_ids),
            targets=mx.array(targets),
            loss_weights=mx.array(weights),
        )
        if places is not None:
            inputs["places"] = mx.array(places)
        if rows.segment_ids is not None:
            inputs["segment_ids"] = mx.array(rows.segment_ids)
            inputs["longest"] = _longest(rows.segment_ids)
        return inputs

    def nll(self, model: GPT, inputs: Inputs, key: mx.array | None) -> mx.array:
        """Return the sum over all targets of weight times negative log-likelihood in nats, float32.

        A sum, not a mean: whoever adds several of them divides once, by the sum of the weights, so
        that a token counts the same in a short micro-batch and in a long one. `key` decides the
        dropout; None: there is none, as in an evaluation.
        """
        segments = inputs.get("segment_ids")
        longest = inputs.get("longest")
        attend = CausalAttend() if segments is None else SegmentAttend(segments, longest)
        dropout = None
        if key is not None and (self.dropout or self.adapter_dropout):
            dropout = Dropout(self.dropout, key, self.adapter_dropout)
        features = model.features(
            inputs["input_ids"], attend, dropout, recompute=self.checkpoint_layers
        )
        targets, weights = inputs["targets"], inputs["loss_weights"]
        if "places" in inputs:
            features = features.reshape(-1, features.shape[-1])[inputs["places"]]
        chunk = self.logits_chunk or tokens_at_once(model.config.vocab)
        if targets.size <= chunk:
            return weighted_nll(model, features, targets, weights, dropout)
        features = features.reshape(-1, features.shape[-1])
        targets, weights = targets.reshape(-1), weights.reshape(-1)
        if key is None:
            return evaluated_nll(model, features, targets, weights, chunk)
        return chunked_nll(model, features, targets, weights, dropout, chunk)


def _counting(weights: np.ndarray) -> np.ndarray | None:
    """Return the numbers of the places whose weight is not 0, and some more; None if most count.

    A few more than there are, so that batches of one shape have few numbers of them.
    """
    found = np.flatnonzero(weights)
    if len(found) >= _WORTH_IT * weights.size:
        return None
    step = -(-weights.size // _SIZES)
    wanted = max(1, -(-len(found) // step)) * step
    places = np.zeros(min(wanted, weights.size), dtype=np.int32)
    places[: len(found)] = found
    return places


def _longest(segments: np.ndarray) -> int:
    """Return a bound of the longest run of one number in a row, one of a few for each shape."""
    first = np.ones(segments.shape, dtype=np.bool_)
    first[:, 1:] = segments[:, 1:] != segments[:, :-1]
    runs = np.diff(np.append(np.flatnonzero(first), segments.size))
    step = -(-segments.shape[1] // _LONGEST)
    return min(-(-int(runs.max()) // step) * step, segments.shape[1])
