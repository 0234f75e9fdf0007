"""A block that keeps nothing of what it computes but its input, and computes it again on the way
back (Chen et al., 2016): the memory of one block instead of that of all."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxgpt.model.attend import Attend
from mlxgpt.model.dropout import Dropout
from mlxgpt.model.layers import Block
from mlxgpt.model.lora import dropping


def run_block(
    block: Block, part: int, x: mx.array, attend: Attend, dropout: Dropout | None
) -> mx.array:
    """Return what `block` makes of x (B, T, C); it is part number `part` of the network."""
    if dropout is None:
        return block(x, attend, None)
    with dropping(block, dropout.of_adapters(part)):
        return block(x, attend, dropout)


def recomputed_block(
    block: Block, part: int, x: mx.array, attend: Attend, dropout: Dropout | None
) -> mx.array:
    """Do the same, once more when a gradient asks for it, with the same masks."""

    def run(trained: dict, x: mx.array, key: mx.array | None) -> mx.array:
        again = None if dropout is None or key is None else replace(dropout, key=key)
        with holding(block, trained):
            return run_block(block, part, x, attend, again)

    @mx.custom_function
    def once(trained: dict, x: mx.array, key: mx.array | None) -> mx.array:
        return run(trained, x, key)

    @once.vjp
    def _again(primals: tuple, cotangent: mx.array, output: mx.array) -> tuple:  # noqa: ARG001
        trained, x, key = primals
        # Not before the blocks behind it are done, nor is what was computed before taken for it.
        late = _after([x] if key is None else [x, key], [cotangent])

        def one(trained: dict, x: mx.array) -> mx.array:
            return (run(trained, x, None if key is None else late[1]) * cotangent).sum()

        of_trained, of_x = mx.grad(one, argnums=(0, 1))(trained, late[0])
        # This block's gradients come before the next block's: what they are made from can go.
        (of_x,) = _after([of_x], [gradient for _, gradient in tree_flatten(of_trained)])
        return of_trained, of_x, key if key is None else mx.zeros_like(key)

    key = None if dropout is None else dropout.key
    return cast(mx.array, once(block.trainable_parameters(), x, key))


def _after(arrays: list[mx.array], others: list[Any]) -> list[mx.array]:
    """Return `arrays`, which will not be looked at before `others` are computed."""
    return cast(list[mx.array], mx.depends(arrays, others)) if others else arrays


@contextmanager
def holding(module: nn.Module, trained: dict) -> Iterator[None]:
    """Let `module` compute with other arrays than its own trained ones, for a while."""
    before = module.trainable_parameters()
    module.update(trained)
    try:
        yield
    finally:
        module.update(before)
