"""Model and batch -> loss: cross-entropy of the next token, weighted per token."""

import mlx.core as mx

from mlxgpt.model import GPT, CausalAttend, Dropout, SegmentAttend, cross_entropy


def weighted_nll(
    model: GPT,
    input_ids: mx.array,
    targets: mx.array,
    loss_weights: mx.array,
    segment_ids: mx.array | None = None,
    dropout: Dropout | None = None,
) -> mx.array:
    """Return the sum over (B, T) of weight times negative log-likelihood in nats, float32.

    A sum, not a mean: whoever adds several of them divides once, by the sum of the weights, so that
    a token counts the same in a short micro-batch and in a long one.
    """
    attend = CausalAttend() if segment_ids is None else SegmentAttend(segment_ids)
    logits = model(input_ids, attend, dropout).astype(mx.float32)
    return (cross_entropy(logits, targets) * loss_weights).sum()
