"""Divisors of the rotary frequencies in a GGUF file -> the Llama 3 settings that they came from.

llama.cpp stores for each pair of a head the number that its frequency is divided by, and not the
settings. They are found by trying: each file in use has the same two borders, and as its first
context a power of two.
"""

import numpy as np

from mlxgpt.errors import CheckpointError
from mlxgpt.model import RopeScaling
from mlxgpt.model.rope_scaling import frequencies

ROPE_FACTORS = "rope_freqs.weight"
"""The tensor that holds them."""

_FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_ORIGINALS = tuple(2**n for n in range(5, 21))
_TOLERANCE = 1e-5
"""Relative; the file holds float32."""


def rope_factors(head_dim: int, theta: float, scaling: RopeScaling | None) -> np.ndarray:
    """Return what the frequency of each pair is divided by, (D / 2,) float64."""
    return frequencies(head_dim, theta, None) / frequencies(head_dim, theta, scaling)


def llama3_scaling(
    factors: np.ndarray, head_dim: int, theta: float, where: str
) -> RopeScaling | None:
    """Return the scaling that gives these `factors`, None if all are 1.

    Raises `CheckpointError` if there is none that does within the rounding of float32.
    """
    if factors.shape == (head_dim // 2,) and np.isfinite(factors).all():
        if np.allclose(factors, 1, rtol=_TOLERANCE):
            return None
        # A head whose slowest pair is not slow enough does not show the factor in full.
        largest = float(factors.max())
        for factor in (_rounded(largest), *(f for f in _FACTORS if f > largest)):
            for original in _ORIGINALS if 1 < factor <= 1e6 else ():
                scaling = RopeScaling(
                    rope_type="llama3", factor=factor, original_max_position_embeddings=original
                )
                expected = rope_factors(head_dim, theta, scaling)
                if np.allclose(factors, expected, rtol=_TOLERANCE, atol=0):
                    return scaling
    raise CheckpointError(
        f"{where}: '{ROPE_FACTORS}' is not what the Llama 3 formula gives for any usual context "
        "(powers of two, borders 1 and 4); such rotary positions are not supported"
    )


def _rounded(value: float) -> float:
    """Return the whole number next to `value` if float32 cannot tell them apart."""
    return float(round(value)) if abs(value - round(value)) < value * _TOLERANCE else value
