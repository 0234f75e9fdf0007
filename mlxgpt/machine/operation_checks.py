"""MLX's fused operations on the default device, held against their formulas in float64.

In float32 more than rounding is allowed where matrices are multiplied: some GPUs keep 11 bits of
each factor there.
"""

from collections.abc import Callable

import mlx.core as mx
import numpy as np

from mlxgpt import seeding
from mlxgpt.machine.device_check import DeviceCheck, apart, check

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
PRODUCTS = {"float32": 2e-3, "float16": 5e-3, "bfloat16": 3e-2}
"""Allowed where matrices are multiplied."""
ELEMENTWISE = {"float32": 1e-3, "float16": 5e-3, "bfloat16": 3e-2}
"""Allowed elsewhere; a rotary angle of hundreds of radians is known to 1e-4 in float32."""
SUMS = {"float32": 2e-3, "float16": 3e-2, "bfloat16": 2e-1}
"""Allowed for quantized products, which MLX sums in half precision on a CPU."""

Compute = Callable[[mx.Dtype], float]


def check_operations() -> list[DeviceCheck]:
    """Check attention, rotary positions, normalization and quantized products in each precision.

    Takes some tenths of a second.
    """
    operations: list[tuple[str, str, dict[str, float], Compute]] = [
        ("attention", "mx.fast against its formula", PRODUCTS, _attention),
        ("causal attention", "mx.fast against its formula", PRODUCTS, _causal_attention),
        ("rotary positions", "mx.fast against its formula", ELEMENTWISE, _rotary),
        ("RMSNorm", "mx.fast against its formula", ELEMENTWISE, _rms_norm),
        ("4-bit product", "quantized against dequantized", SUMS, _quantized(4)),
        ("8-bit product", "quantized against dequantized", SUMS, _quantized(8)),
    ]
    return [
        check(f"{name}, {dtype}", compared, allowed[dtype], lambda c=compute, d=dtype: c(DTYPES[d]))
        for name, compared, allowed, compute in operations
        for dtype in DTYPES
    ]


def _attention(dtype: mx.Dtype) -> float:
    """One query a head over 300 keys, the shape of generation."""
    return _attention_apart(dtype, queries=1, keys=300, causal=False)


def _causal_attention(dtype: mx.Dtype) -> float:
    """Many queries, the shape of training."""
    return _attention_apart(dtype, queries=70, keys=70, causal=True)


def _attention_apart(dtype: mx.Dtype, *, queries: int, keys: int, causal: bool) -> float:
    heads, kv_heads, d = 6, 2, 64
    q = _noise("q", (1, heads, queries, d), dtype)
    k, v = (_noise(name, (1, kv_heads, keys, d), dtype) for name in "kv")
    mask = "causal" if causal else None
    got = mx.fast.scaled_dot_product_attention(q, k, v, scale=d**-0.5, mask=mask)
    each = [np.repeat(_float64(x), heads // kv_heads, axis=1) for x in (k, v)]
    scores = _float64(q) @ each[0].swapaxes(-1, -2) * d**-0.5
    if causal:
        scores = np.where(np.tri(queries, keys, keys - queries) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return apart(_float64(got), weights / weights.sum(axis=-1, keepdims=True) @ each[1])


def _rotary(dtype: mx.Dtype) -> float:
    d, offset, base = 64, 300, 10000.0
    x = _noise("x", (2, 3, 20, d), dtype)
    got = mx.fast.rope(x, d, traditional=False, base=base, scale=1.0, offset=offset)
    angles = np.arange(offset, offset + 20)[:, None] / base ** (np.arange(0, d, 2) / d)
    first, second = np.split(_float64(x), 2, axis=-1)
    cosine, sine = np.cos(angles), np.sin(angles)
    turned = [first * cosine - second * sine, second * cosine + first * sine]
    return apart(_float64(got), np.concatenate(turned, axis=-1))


def _rms_norm(dtype: mx.Dtype) -> float:
    x, gains = _noise("x", (5, 200), dtype), _noise("gains", (200,), dtype)
    got = mx.fast.rms_norm(x, gains, 1e-5)
    exact = _float64(x)
    size = np.sqrt((exact**2).mean(axis=-1, keepdims=True) + 1e-5)
    return apart(_float64(got), exact / size * _float64(gains))


def _quantized(bits: int) -> Compute:
    def compute(dtype: mx.Dtype) -> float:
        width, group_size, worst = 256, 64, []
        w = _noise("w", (96, width), dtype) * width**-0.5
        packed = mx.quantize(w, group_size=group_size, bits=bits)
        exact = mx.dequantize(*packed, group_size=group_size, bits=bits)
        for rows in (1, 40):  # different kernels on a GPU
            x = _noise("x", (rows, width), dtype)
            got = mx.quantized_matmul(x, *packed, group_size=group_size, bits=bits)
            worst.append(apart(_float64(got), _float64(x) @ _float64(exact).T))
        return float(np.max(worst))

    return compute


def _noise(name: str, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    numbers = seeding.generator(0, f"device-check/{name}").normal(size=shape)
    return mx.array(numbers.astype(np.float32)).astype(dtype)


def _float64(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)).astype(np.float64)
