"""Network and batch -> loss: cross-entropy of the next token, weighted per token."""

from dataclasses import dataclass

import mlx.core as mx

from mlxgpt.data import Batch
from mlxgpt.model import GPT, CausalAttend, Dropout, SegmentAttend, cross_entropy

Inputs = dict[str, mx.array]
"""What a traced function is given of a batch."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """How a batch becomes a loss. The same settings, network, batch and key give the same loss."""

    dropout: float = 0.0
    """Rate on the embedding and on what each block adds."""

    def inputs(self, rows: Batch) -> Inputs:
        """Return the arrays of `rows` that `nll` needs; made outside of any traced function."""
        inputs = {
            "input_ids": mx.array(rows.input_ids),
            "targets": mx.array(rows.targets),
            "loss_weights": mx.array(rows.loss_weights),
        }
        if rows.segment_ids is not None:
            inputs["segment_ids"] = mx.array(rows.segment_ids)
        return inputs

    def nll(self, model: GPT, inputs: Inputs, key: mx.array | None) -> mx.array:
        """Return the sum over all targets of weight times negative log-likelihood in nats, float32.

        A sum, not a mean: whoever adds several of them divides once, by the sum of the weights, so
        that a token counts the same in a short micro-batch and in a long one. `key` decides the
        dropout; None: there is none, as in an evaluation.
        """
        segments = inputs.get("segment_ids")
        attend = CausalAttend() if segments is None else SegmentAttend(segments)
        dropout = Dropout(self.dropout, key) if self.dropout and key is not None else None
        logits = model(inputs["input_ids"], attend, dropout).astype(mx.float32)
        return (cross_entropy(logits, inputs["targets"]) * inputs["loss_weights"]).sum()
