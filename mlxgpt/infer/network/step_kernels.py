"""The parts of a step that are no matrix products: norm, SwiGLU, rotation; float32 on a CPU.

Each is written so that `mx.compile` gives few loops, and ones that the C++ compiler can vectorize:
no maximum, no choice, no exp, each of which MLX has there as a branch or a call for every number.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar, cast

import mlx.core as mx

Function = TypeVar("Function", bound=Callable[..., mx.array])

_SHAPES = 64
"""Numbers of tokens whose compiled functions are kept."""
_FEW = 4
"""Up to so many tokens the norm is compiled: there it is the number of operations that counts."""


class StepKernels:
    """Functions for steps of N tokens.

    Compiled for that N only: in a function for all shapes each operation has broadcasts before it,
    and MLX, which puts a limited number into one loop, makes several loops of it.
    """

    def __init__(self, count: int, *, compiled: bool) -> None:
        def best(function: Function, *, compiled: bool = compiled) -> Function:
            # A new object each time: MLX finds what it has compiled by the function's identity.
            return cast(Function, mx.compile(partial(function))) if compiled else function

        self.swiglu = best(swiglu)
        self.rotate = best(rotate)
        self._normalize = best(_normalize, compiled=compiled and count <= _FEW)

    def norm(self, x: mx.array, gains: mx.array, mean: mx.array, eps: mx.array) -> mx.array:
        """Return RMSNorm over the last axis; `mean` (C, 1) is filled with 1 / C.

        The product with `mean` is faster than MLX's mean.
        """
        return self._normalize(x, mx.square(x) @ mean, eps, gains)


@lru_cache(maxsize=_SHAPES)
def step_kernels(count: int, *, compiled: bool) -> StepKernels:
    """Return the functions for steps of `count` tokens."""
    return StepKernels(count, compiled=compiled)


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """Return silu(gate) * up, with silu to 3e-7 of the number or 3e-7, whichever is larger.

    silu(x) = max(x, 0) - |x| / (1 + exp(|x|)), where an exp that overflows does no harm. It is the
    Taylor polynomial of degree 6 at |x| / 16, squared four times. An infinite gate gives NaN.
    """
    size = mx.abs(gate)
    y = size * (1 / 16)
    e = 1 + y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120 + y * (1 / 720))))))
    for _ in range(4):
        e = e * e
    return (0.5 * (gate + size) - size / (1 + e)) * up


def rotate(x: mx.array, cosine: mx.array, sine: mx.array) -> mx.array:
    """Turn the pairs of x (N, heads, 2, D/2), which lie along its third axis.

    `cosine` (N, 1, 2, D/2) has each angle's twice, `sine` has its negative first.
    """
    return x * cosine + x[:, :, ::-1] * sine


def _normalize(x: mx.array, mean_square: mx.array, eps: mx.array, gains: mx.array) -> mx.array:
    return x * mx.rsqrt(mean_square + eps) * gains
