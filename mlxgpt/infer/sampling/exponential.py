"""exp of rows of logits below their highest; MLX's own is its plain twin.

MLX's exp is scalar code on a CPU, and would take most of the time that choosing a token takes. The
polynomial is three to four times as fast, and as exact.
"""

import mlx.core as mx

_WORTH_IT = 2048
"""Numbers in a row from which on the polynomial pays."""
_TOGETHER = 1 << 18
"""Numbers to go through all steps before the next ones: they stay in the processor's cache."""

# 2^f for f in [-1/2, 1/2], lowest power first: a least-squares fit, off by 2e-9 at most.
_POWERS = (1.0, 0.693147206, 0.240226469, 0.0555032878, 0.0096184890, 0.00133999311, 0.000153458001)
_LOG2_E = 1.4426950408889634
_ONE = 1 << 23
"""The lowest bit of the exponent of a float32."""
_BIAS = 127


def exp(x: mx.array) -> mx.array:
    """Return exp(x) of rows (R, V) float32 that are 0 at most; exactly 0 below -88."""
    rows, size = x.shape
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    if not on_cpu or size < _WORTH_IT:
        return mx.exp(x)
    step = max(_TOGETHER // size, 1)
    parts = [_polynomial(x[i : i + step]) for i in range(0, rows, step)]
    return parts[0] if len(parts) == 1 else mx.concatenate(parts)


def _polynomial(x: mx.array) -> mx.array:
    """2^y with y = n + f: a polynomial for f, n put into the bits of the exponent."""
    y = mx.maximum(x * _LOG2_E, -float(_BIAS))
    n = mx.round(y)
    f = y - n
    power = _POWERS[-1] * f
    for coefficient in _POWERS[-2:0:-1]:
        power = (power + coefficient) * f
    exponent = (n * float(_ONE) + float(_BIAS * _ONE)).astype(mx.int32).view(mx.float32)
    return (power + _POWERS[0]) * exponent
