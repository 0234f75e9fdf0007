"""Where exp is spent: SwiGLU, attention, cross-entropy; each with MLX's own way as its twin.

On a GPU, and in half precision, MLX's fused kernels do the work. On a CPU its exp is scalar code,
and a small model's step spends more time there than in its matrix products; so there float32 goes
through a polynomial that `mx.compile` turns into vector code, and through backward passes written
by hand.
"""

from typing import cast

import mlx.core as mx
import mlx.nn as nn

from mlxgpt.model.causal import Causal

_WORTH_IT = 16384
"""Numbers in an array from which on the polynomial is used."""
_BLOCK, _BLOCKS = 64, 4
"""Attention goes by blocks of queries, each with the keys that it may see: of so many at least, and
hardly more than so many, since each takes some twenty operations, which threads wait for."""


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """Return silu(gate) * up, elementwise."""
    return cast(mx.array, _swiglu(gate, up)) if _by_hand(gate) else plain_swiglu(gate, up)


def attention(q: mx.array, k: mx.array, v: mx.array, causal: Causal) -> mx.array:
    """Scaled dot-product attention (Vaswani et al., 2017, eq. 1) with scale 1 / sqrt(D).

    q (B, H, T, D), k and v (B, Hkv, S, D); query head h uses key/value head h // (H // Hkv).
    `causal` says which of the keys a query sees.
    """
    queries, keys = q.shape[2], k.shape[2]
    if queries == 1 or not _by_hand(q):
        return plain_attention(q, k, v, causal)
    return mx.concatenate(
        [
            _attention(q[:, :, some], k[:, :, seen], v[:, :, seen], mask)
            for some, seen, mask in causal.blocks(queries, keys, max(_BLOCK, queries // _BLOCKS))
        ],
        axis=2,
    )


def cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """Return -log softmax(logits)[target], float32, of the shape of `targets` (...).

    logits (..., V); targets must lie in [0, V).
    """
    if not _by_hand(logits):
        return plain_cross_entropy(logits, targets)
    highest = mx.stop_gradient(logits.max(axis=-1, keepdims=True))
    total = _exp(logits - highest) @ mx.ones((logits.shape[-1], 1))
    chosen = mx.take_along_axis(logits, targets[..., None].astype(mx.int32), axis=-1)
    return (highest + mx.log(total) - chosen).squeeze(-1)


def plain_swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """`swiglu`, by MLX."""
    return nn.silu(gate) * up


def plain_attention(q: mx.array, k: mx.array, v: mx.array, causal: Causal) -> mx.array:
    """`attention`, by MLX."""
    mask = causal.mask(q.shape[2], k.shape[2])
    return mx.fast.scaled_dot_product_attention(q, k, v, scale=q.shape[-1] ** -0.5, mask=mask)


def plain_cross_entropy(logits: mx.array, targets: mx.array) -> mx.array:
    """`cross_entropy`, by MLX."""
    return mx.fast.cross_entropy(logits, targets)


def _by_hand(x: mx.array) -> bool:
    """Whether the polynomial pays: for one generated token its many small operations do not."""
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    return on_cpu and x.dtype == mx.float32 and x.size >= _WORTH_IT


def _polynomial_exp(x: mx.array) -> mx.array:
    """exp for x <= 0: one over the Taylor polynomial of -x / 64, doubled six times.

    All its terms are positive, so that it overflows to infinity, whose inverse is the 0 that is
    due: nothing has to be compared, and the C++ compiler makes vector code of it.
    """
    y = mx.abs(x) * (1 / 64)
    # Three times in the form exp(2y) - 1 = (exp(y) - 1) * (exp(y) + 1), which rounds less for a
    # small y, then squared.
    less = y * (1 + y * (1 / 2 + y * (1 / 6 + y * (1 / 24 + y * (1 / 120)))))
    for _ in range(3):
        less = less * (2 + less)
    p = 1 + less
    for _ in range(3):
        p = p * p
    return 1 / p


def _exp(x: mx.array) -> mx.array:
    """exp for x <= 0, with the derivative that exp has and its polynomial has not quite."""
    return cast(mx.array, _exp_function(x))


@mx.custom_function
def _exp_function(x: mx.array) -> mx.array:
    return _polynomial_exp(x)


@_exp_function.vjp
def _exp_vjp(primals: mx.array, cotangent: mx.array, output: mx.array) -> mx.array:  # noqa: ARG001
    return cotangent * output


def _sigmoid(x: mx.array) -> mx.array:
    e = _polynomial_exp(-mx.abs(x))
    return mx.where(x < 0, e, 1.0) / (1 + e)


@mx.custom_function
def _swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return gate * _sigmoid(gate) * up


@_swiglu.vjp
def _swiglu_vjp(
    primals: tuple[mx.array, mx.array],
    cotangent: mx.array,
    output: mx.array,  # noqa: ARG001
) -> tuple[mx.array, mx.array]:
    gate, up = primals
    s = _sigmoid(gate)
    return cotangent * up * s * (1 + gate * (1 - s)), cotangent * gate * s


def _attention(q: mx.array, k: mx.array, v: mx.array, mask: mx.array) -> mx.array:
    """Attention in full: scores, their softmax, the mean of the values. Each query sees a key.

    `mask` (T, S) or (B, 1, T, S).
    """
    b, h, t, d = q.shape
    kv_heads, s = k.shape[1], k.shape[2]
    group = h // kv_heads
    # The queries that share a key head lie side by side, so that no key is copied.
    rows = (q * d**-0.5).reshape(b, kv_heads, group * t, d)
    grouped = (rows @ k.swapaxes(-1, -2)).reshape(b, kv_heads, group, t, s)
    seen = mask if mask.ndim == 2 else mask[:, None]
    scores = mx.where(seen, grouped, -float("inf")).reshape(b, kv_heads, group * t, s)
    weights = _exp(scores - mx.stop_gradient(scores.max(axis=-1, keepdims=True)))
    # A product with ones is faster than a sum.
    return ((weights @ v) / (weights @ mx.ones((s, 1)))).reshape(b, h, t, d)
