"""Features and targets -> the loss, without the logits of all tokens ever being there at once.

Logits are by far the largest arrays of a step: V numbers a token. Here a few tokens at a time get
them, and at once the gradient with respect to what the head reads and to the head itself, which
are much smaller; on the way back that gradient only needs to be scaled. So nothing is computed
twice.
"""

from itertools import pairwise
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map

from mlxgpt.model.dropout import Dropout
from mlxgpt.model.gpt import GPT
from mlxgpt.model.kernels import cross_entropy
from mlxgpt.model.recomputing import holding

LOGITS_BYTES = 64 * 2**20
"""How much the float32 logits of one chunk may take if nothing else is said."""


def tokens_at_once(vocab: int) -> int:
    """Return how many tokens have logits of at most `LOGITS_BYTES`."""
    return max(1, LOGITS_BYTES // (4 * vocab))


def weighted_nll(
    model: GPT,
    features: mx.array,
    targets: mx.array,
    weights: mx.array,
    dropout: Dropout | None,
    piece: int = 0,
) -> mx.array:
    """Return the sum of weight times negative log-likelihood in nats, float32, all at once.

    features (..., C), targets and weights (...). `dropout` is that of a change of the head, and
    `piece` tells the calls of one pass apart.
    """
    logits = model.head(features, dropout, piece).astype(mx.float32)
    return (cross_entropy(logits, targets) * weights).sum()


def chunked_nll(
    model: GPT,
    features: mx.array,
    targets: mx.array,
    weights: mx.array,
    dropout: Dropout | None,
    chunk: int,
) -> mx.array:
    """Return the same as `weighted_nll` for features (N, C), `chunk` tokens at a time.

    Without a gradient, `evaluated_nll` costs half.
    """

    def one(trained: dict, piece: int, x: mx.array, part: slice) -> mx.array:
        with holding(model.head_module, trained):
            return weighted_nll(model, x, targets[part], weights[part], dropout, piece)

    @mx.custom_function
    def whole(trained: dict, features: mx.array) -> tuple[mx.array, dict, mx.array]:
        total, of_features = mx.array(0.0), []
        of_head: Any = tree_map(lambda p: mx.zeros(p.shape), trained)
        for piece, part in enumerate(_parts(features.shape[0], chunk)):
            x = features[part]
            if of_features:  # one chunk after the other: else the logits of all would come first
                done = [total, of_features[-1], *(g for _, g in tree_flatten(of_head))]
                x = cast(list[mx.array], mx.depends([x], done))[0]
            loss, (head, back) = mx.value_and_grad(one, argnums=(0, 2))(trained, piece, x, part)
            of_head = tree_map(mx.add, of_head, head)
            total = total + loss
            of_features.append(back)
        return total, of_head, mx.concatenate(of_features)

    @whole.vjp
    def _scaled(
        primals: tuple[dict, mx.array], cotangents: tuple, outputs: tuple
    ) -> tuple[dict, mx.array]:
        def scaled(gradient: mx.array, primal: mx.array) -> mx.array:
            return (gradient * cotangents[0]).astype(primal.dtype)

        _, of_head, of_features = outputs
        return tree_map(scaled, of_head, primals[0]), scaled(of_features, primals[1])

    outputs = cast(tuple, whole(model.head_module.trainable_parameters(), features))
    return outputs[0]


def evaluated_nll(
    model: GPT, features: mx.array, targets: mx.array, weights: mx.array, chunk: int
) -> mx.array:
    """Return the same, without dropout, for those who want no gradient; the plain twin."""
    total = mx.array(0.0)
    for part in _parts(features.shape[0], chunk):
        total = total + weighted_nll(model, features[part], targets[part], weights[part], None)
    return total


def _parts(count: int, most: int) -> list[slice]:
    """Cut `count` tokens into chunks of nearly equal size, of `most` at most."""
    number = -(-count // most)
    edges = [count * i // number for i in range(number + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]
