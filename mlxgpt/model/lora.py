"""A frozen module and two thin matrices -> a module whose matrix is changed by their product.

LoRA (Hu et al., 2021) adds `scale * a @ b`, which has few numbers of its own. DoRA (Liu et al.,
2024) then gives each row of the sum a length of its own, `m`. The base may be quantized and stays
as it is, under `linear` or `embedding`. These names, and those of the arrays, are mlx-lm's.
"""

import mlx.core as mx
import mlx.nn as nn

Linear = nn.Linear | nn.QuantizedLinear
Embedding = nn.Embedding | nn.QuantizedEmbedding


class LoRALinear(nn.Module):
    """`linear(x) + scale * x a b`, for x (..., in), a (in, r), b (r, out)."""

    def __init__(self, linear: Linear, lora_a: mx.array, lora_b: mx.array, scale: float) -> None:
        super().__init__()
        linear.freeze()
        self.linear = linear
        self.lora_a, self.lora_b, self.scale = lora_a, lora_b, scale

    def __call__(self, x: mx.array) -> mx.array:
        y = self.linear(x)
        return y + (self.scale * ((x @ self.lora_a) @ self.lora_b)).astype(y.dtype)


class DoRALinear(nn.Module):
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
        y = base + self.scale * ((x @ self.lora_a) @ self.lora_b)
        left, right = self.lora_b.T, self.lora_a.T
        lengths = _row_lengths(self.linear, self._squares, self.scale, left, right)
        y = (y * row_factors(self.m, lengths)).astype(base.dtype)
        return y + self.linear.bias if "bias" in self.linear else y


class LoRAEmbedding(nn.Module):
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
        return y + (self.scale * (self.lora_a[ids] @ self.lora_b)).astype(y.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        y = self.embedding.as_linear(x)
        return y + (self.scale * ((x @ self.lora_b.T) @ self.lora_a.T)).astype(y.dtype)


class DoRAEmbedding(nn.Module):
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
        rows = base + self.scale * (self.lora_a[ids] @ self.lora_b)
        lengths = mx.stop_gradient(mx.linalg.norm(rows, axis=-1))
        return (rows * row_factors(self.m[ids], lengths)[..., None]).astype(base.dtype)

    def as_linear(self, x: mx.array) -> mx.array:
        base = self.embedding.as_linear(x)
        y = base + self.scale * ((x @ self.lora_b.T) @ self.lora_a.T)
        lengths = _row_lengths(self.embedding, self._squares, self.scale, self.lora_a, self.lora_b)
        return (y * row_factors(self.m, lengths)).astype(base.dtype)


ADAPTED = (LoRALinear, DoRALinear, LoRAEmbedding, DoRAEmbedding)


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
