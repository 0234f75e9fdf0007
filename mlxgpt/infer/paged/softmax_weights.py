"""Scores -> exp of their distance from the highest, and the values that weights may be put on."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar, cast

import mlx.core as mx

from mlxgpt.machine.compiler import compile_available

Function = TypeVar("Function", bound=Callable[..., mx.array])

_ROOT = -2.1806071
"""Where the Taylor polynomial of exp of degree 5 is 0; it rises from there on."""
_LARGEST = 3.0e38


@cache
def weights_function(scale: float) -> Callable[[mx.array, mx.array], mx.array]:
    """Return (scores, highest) -> exp((scores - highest) * scale), for scores up to `highest`.

    The relative error is about 3e-6 down to exp(-8); far below it is exactly 0, and so it is for a
    score that is not a number. Where `mx.compile` works it is one operation.
    """

    def compiled(scores: mx.array, highest: mx.array) -> mx.array:
        # Of x / 64 by a polynomial, then doubled six times: exp(2y) = exp(y)**2, first in the form
        # exp(2y) - 1 = (exp(y) - 1) * (exp(y) + 1), which rounds less for small y.
        y = (scores - highest) * (scale / 64)
        y = mx.where(y > _ROOT, y, _ROOT)
        less = y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120)))))
        for _ in range(2):
            less = less * (2 + less)
        weights = 1 + less
        for _ in range(4):
            weights = weights * weights
        return weights

    def plain(scores: mx.array, highest: mx.array) -> mx.array:
        weights = mx.exp((scores - highest) * scale)
        return mx.where(weights >= 0, weights, 0.0)

    return _compiled(compiled) if _compiling() else plain


@cache
def finite_function() -> Callable[[mx.array], mx.array]:
    """Return x -> x, with 0 for what is NaN or infinite."""

    def finite(x: mx.array) -> mx.array:
        return mx.where(mx.abs(x) <= _LARGEST, x, 0.0)

    return _compiled(finite) if _compiling() else finite


@cache
def _compiling() -> bool:
    return bool(compile_available())


def _compiled(function: Function) -> Function:
    """Compile for all shapes at once: those of a step seldom come again."""
    return cast(Function, mx.compile(function, shapeless=True))
