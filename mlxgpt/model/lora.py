"""A frozen module and two thin matrices -> a module whose matrix is changed by their product.

LoRA (Hu et al., 2021) adds `scale * a @ b`, which has few numbers of its own. DoRA (Liu et al.,
2024) then gives each row of the sum a length of its own, `m`. The base may be quantized and stays
as it is, under `linear` or `embedding`. These names, and those of the arrays, are mlx-lm's.

In training the product may be fed with a part of its input only. That is decided from outside, for
the time of one pass (`dropping`): no module remembers a rate.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import mlx.core as mx
import mlx.nn as nn

from mlxgpt.model.dropout import Dropout

Linear = nn.Linear | nn.QuantizedLinear
Embedding = nn.Embedding | nn.QuantizedEmbedding


class _LowRank(nn.Module):
    """A module with a low-rank part, and what that part does not get to see."""

    def __init__(self) -> None:
        super().__init__()
        self._drop: Dropout | None = None
        self._place = 0

    def seen(self, x: mx.array) -> mx.array:
        """Return what the low-rank part sees of its input."""
        return x if self._drop is None else self._drop(x, self._place)

    def seen_of(self, rows: mx.array) -> mx.array:
        """Return what is left of an embedding's change (..., C): an id is one number of its input,
        and is seen or not."""
        return rows if self._drop is None else rows * self.seen(mx.ones((*rows.shape[:-1], 1)))

    def drop(self, dropout: Dropout | None, place: int) -> None:
        """Hide a part of the input from now on; None: no longer."""
        self._drop, self._place = dropout, place


class LoRALinear(_LowRank):
    """`linear(x) + scale * x a b`, for x (..., in), a (in, r), b (r, out)."""

    def __init__(self, linear: Linear, lora_a: mx.array, lora_b: mx.array, scale: float) -> None:
        super().__init__()
        linear.freeze()
        self.linear = linear
        self.lora_a, self.lora_b, self.scale = lora_a, lora_b, scale

    def __call__(self, x: mx.array) -> mx.array:
        y = self.linear(x)
        return y + (self.scale * ((self.seen(x) @ self.lora_a) @ self.lora_b)).astype(y.dtype)


class DoRALinear(_LowRank):
    """As `LoRALinear`, and row j of the changed matrix, which makes output j, has length `m[j]`.

    Its gradient takes the length before that for a constant (section 4.3 of the paper). The base
    must hold its final weights when this is made.
    """

    def __init__(
        self, linear: Linear, lora_a: mx.array, lora_b: mx.array, scale: float, m: mx.array
    ) -> None:
        super().__init__()
        linear.freeze()
        self.linear = linear
        self.lora_a, self.lora_b, self.scale, self.m = lora_a, lora_b, scale, m
        self._squares = _row_squares(linear)

    def __call__(self, x: mx.array) -> mx.array:
        base = _product(self.linear, x)
        y = base + self.scale * ((self.seen(x) @ self.lora_a) @ self.lora_b)
        left, right = self.lora_b.T, self.lora_a.T
        lengths = _row_lengths(self.linear, self._squares, self.scale, left, right)
        y = (y * row_factors(self.m, lengths)).astype(base.dtype)
        return y + self.linear.bias if "bias" in self.linear else y


class LoRAEmbedding(_LowRank):
    """An embedding (ids, C) plus `scale * a b`, for a (ids, r), b (r, C); as a head, too."""

    def __init__(
        self, embedding: Embedding, lora_a: mx.array, lora_b: mx.array, scale: float
    ) -> None:
        super().__init__()
        embedding.freeze()
        self.embedding = embedding
        self.lora_a, self.lora_b, self.scale = lora_a, lora_b, scale

    def __call__(self, ids: mx.array) -> mx.array:
        y = self.embedding(ids)
        change = self.scale * (self.lora_a[ids] @ self.lora_b)
        return y + self.seen_of(change).astype(y.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        y = self.embedding.as_linear(x)
        return y + (self.scale * ((self.seen(x) @ self.lora_b.T) @ self.lora_a.T)).astype(y.dtype)


class DoRAEmbedding(_LowRank):
    """As `LoRAEmbedding`, and the changed row of id i has length `m[i]`."""

    def __init__(
        self, embedding: Embedding, lora_a: mx.array, lora_b: mx.array, scale: float, m: mx.array
    ) -> None:
        super().__init__()
        embedding.freeze()
        self.embedding = embedding
        self.lora_a, self.lora_b, self.scale, self.m = lora_a, lora_b, scale, m
        self._squares = _row_squares(embedding)

    def __call__(self, ids: mx.array) -> mx.array:
        base = self.embedding(ids)
        change = self.scale * (self.lora_a[ids] @ self.lora_b)
        lengths = mx.stop_gradient(mx.linalg.norm(base + change, axis=-1))
        rows = base + self.seen_of(change)
        return (rows * row_factors(self.m[ids], lengths)[..., None]).astype(base.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        base = self.embedding.as_linear(x)
        y = base + self.scale * ((self.seen(x) @ self.lora_b.T) @ self.lora_a.T)
        lengths = _row_lengths(self.embedding, self._squares, self.scale, self.lora_a, self.lora_b)
        return (y * row_factors(self.m, lengths)).astype(base.dtype)


ADAPTED = (LoRALinear, DoRALinear, LoRAEmbedding, DoRAEmbedding)


@contextmanager
def dropping(network: nn.Module, dropout: Dropout | None) -> Iterator[None]:
    """Let each low-rank part in `network` see its input through a mask of its own, for a while.

    None: all of it. The network must be the caller's own: while it lasts, others see it too.
    """
    if dropout is None or not dropout.rate:
        yield
        return
    found = sorted((path, m) for path, m in network.named_modules() if isinstance(m, _LowRank))
    modules = [module for _, module in found]
    try:
        for place, module in enumerate(modules):
            module.drop(dropout, place)
        yield
    finally:
        for module in modules:
            module.drop(None, 0)


def adapted(
    module: nn.Module, lora_a: mx.array, lora_b: mx.array, scale: float, m: mx.array | None = None
) -> nn.Module:
    """Return `module`, a matrix of any kind, with a low-rank change; with `m` it is DoRA's."""
    if isinstance(module, nn.Linear | nn.QuantizedLinear):
        if m is None:
            return LoRALinear(module, lora_a, lora_b, scale)
        return DoRALinear(module, lora_a, lora_b, scale, m)
    assert isinstance(module, nn.Embedding | nn.QuantizedEmbedding), type(module)
    if m is None:
        return LoRAEmbedding(module, lora_a, lora_b, scale)
    return DoRAEmbedding(module, lora_a, lora_b, scale, m)


def row_factors(m: mx.array, lengths: mx.array) -> mx.array:
    """Return what rows of these lengths are multiplied with to have the lengths `m`.

    A row of zeros has no direction and stays zero.
    """
    return mx.where(lengths > 0, m / mx.where(lengths > 0, lengths, 1.0), 0.0)


def row_lengths(module: nn.Module) -> mx.array:
    """Return the length of each row of a module's matrix, in float32: the `m` with which DoRA
    changes nothing yet."""
    return mx.sqrt(_row_squares(module))


def whole_matrix(module: nn.Module) -> mx.array:
    """Return the matrix (rows, columns) of a module; a quantized one is unpacked."""
    if isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
        return mx.dequantize(
            module.weight,
            module.scales,
            module.get("biases"),
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
        )
    assert isinstance(module, nn.Linear | nn.Embedding), type(module)
    return module.weight


def _row_squares(module: nn.Module) -> mx.array:
    """Return the squared length of each row of a matrix, in float32."""
    return whole_matrix(module).astype(mx.float32).square().sum(axis=-1)


def _row_lengths(
    module: nn.Module, squares: mx.array, scale: float, left: mx.array, right: mx.array
) -> mx.array:
    """Return the length of each row of W + scale * left @ right, for left (rows, r).

    The square of the sum is multiplied out, so that no array of the size of W is made, nor a
    quantized W unpacked, at each step.
    """
    left, right = left.astype(mx.float32), right.astype(mx.float32)
    mixed = (left * _product(module, right).T).sum(axis=-1)
    own = ((left @ (right @ right.T)) * left).sum(axis=-1)
    total = squares + 2 * scale * mixed + scale**2 * own
    return mx.stop_gradient(mx.sqrt(mx.maximum(total, 0.0)))


def _product(module: nn.Module, x: mx.array) -> mx.array:
    """Return x @ W.T, for x (..., columns), without a bias."""
    if isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
        return mx.quantized_matmul(
            x,
            module.weight,
            scales=module.scales,
            biases=module.get("biases"),
            transpose=True,
            group_size=module.group_size,
            bits=module.bits,
            mode=module.mode,
        )
    assert isinstance(module, nn.Linear | nn.Embedding), type(module)
    return x @ module.weight.T
