"""Rotary settings -> angles: how public models stretch positions beyond their first context.

Every formula is a function of the settings alone, save "dynamic", which looks at the length of the
text. Frequencies are the angles, in radians, that one position adds to pair i of a head.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlxgpt.config import require

RopeKind = Literal["linear", "dynamic", "llama3", "yarn"]


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """One way of stretching rotary positions. Raises `ConfigError` for values without meaning.

    The names are those of transformers' `rope_parameters`.
    """

    rope_type: RopeKind
    """linear: positions / factor; dynamic: a larger base for longer texts (NTK); llama3: only low
    frequencies are divided; yarn: by parts, and attention is sharper (Peng et al., 2023)."""
    factor: float
    """How many times longer the context has become."""
    original_max_position_embeddings: int | None = None
    """Context before stretching; llama3, yarn and dynamic need it."""
    low_freq_factor: float = 1.0
    """llama3: wavelengths above original / this are divided by `factor` in full."""
    high_freq_factor: float = 4.0
    """llama3: wavelengths below original / this stay as they are."""
    beta_fast: float = 32.0
    """yarn: pairs that turn more often than this in the original context stay as they are."""
    beta_slow: float = 1.0
    """yarn: pairs that turn less often than this are divided by `factor` in full."""
    attention_factor: float | None = None
    """yarn: multiplies queries and keys; None: by the paper's formula, 0.1 ln(factor) + 1."""
    truncate: bool = True
    """yarn: round the borders of the ramp to whole pairs."""

    def __post_init__(self) -> None:
        require(1 <= self.factor <= 1e6, f"'factor' must be 1 to 1e6; got {self.factor}")
        original = self.original_max_position_embeddings
        require(
            self.rope_type == "linear" or original is not None,
            f"rotary type '{self.rope_type}' needs 'original_max_position_embeddings'",
        )
        require(
            original is None or 1 <= original < 2**31,
            f"'original_max_position_embeddings' must be at least 1; got {original}",
        )
        require(
            0 < self.low_freq_factor < self.high_freq_factor,
            "'low_freq_factor' must be above 0 and below 'high_freq_factor'; got "
            f"{self.low_freq_factor} and {self.high_freq_factor}",
        )
        require(
            0 < self.beta_slow <= self.beta_fast,
            f"'beta_slow' must be above 0 and at most 'beta_fast'; got {self.beta_slow} and "
            f"{self.beta_fast}",
        )
        require(
            self.attention_factor is None or 0 < self.attention_factor <= 100,
            f"'attention_factor' must be above 0 and at most 100; got {self.attention_factor}",
        )

    @property
    def original(self) -> int:
        """`original_max_position_embeddings`, of a type that has it."""
        assert self.original_max_position_embeddings is not None
        return self.original_max_position_embeddings

    @property
    def query_scale(self) -> float:
        """What queries and keys are multiplied with: 1, save for yarn."""
        if self.rope_type != "yarn":
            return 1.0
        if self.attention_factor is not None:
            return self.attention_factor
        return 0.1 * math.log(self.factor) + 1.0


def frequencies(
    head_dim: int, theta: float, scaling: RopeScaling | None, length: int = 0
) -> np.ndarray:
    """Return the angle that one position adds to each pair, (D / 2,) float64.

    `length` is the number of tokens of the text so far, which only "dynamic" looks at.
    """
    exponents = np.arange(0, head_dim, 2) / head_dim
    plain = theta**-exponents
    if scaling is None:
        return plain
    if scaling.rope_type == "linear":
        return plain / scaling.factor
    if scaling.rope_type == "dynamic":
        return dynamic_theta(head_dim, theta, scaling, length) ** -exponents
    if scaling.rope_type == "llama3":
        return _llama3(plain, scaling)
    return _yarn(plain, head_dim, theta, scaling)


def dynamic_theta(head_dim: int, theta: float, scaling: RopeScaling, length: int) -> float:
    """Return the base for a text of `length` tokens: larger ones beyond the original context."""
    ratio = max(length, scaling.original) / scaling.original
    growth = scaling.factor * ratio - (scaling.factor - 1)
    # With one pair there is no frequency between the first and the last to keep.
    return theta * growth ** (head_dim / max(head_dim - 2, 1))


def _llama3(plain: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    turns = scaling.original * plain / (2 * math.pi)  # in the original context
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (kept + (1 - kept) / scaling.factor)


def _yarn(plain: np.ndarray, head_dim: int, theta: float, scaling: RopeScaling) -> np.ndarray:
    """Peng et al., 2023, section 3.2, with the ramp over pairs as in their own code."""
    require(theta > 1, f"rotary type 'yarn' needs a 'rope_theta' above 1; got {theta}")

    def pair_that_turns(times: float) -> float:
        return head_dim * math.log(scaling.original / (times * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    high += 0.001 * (low == high)
    divided = np.clip((np.arange(head_dim // 2) - low) / (high - low), 0, 1)
    return plain * (divided / scaling.factor + (1 - divided))
