"""Sums over a text -> what is reported of it: loss per token and bits per byte."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluation:
    """What a model makes of a text."""

    loss: float
    """Mean negative log-likelihood of a target token, in nats."""
    bits_per_byte: float
    """The same in bits, per byte of text: comparable between tokenizers."""
    num_tokens: int
    """How many target tokens it is the mean of."""

    @classmethod
    def of(cls, nll: float, num_tokens: float, num_bytes: float) -> "Evaluation":
        """Return the means for a sum of `nll` nats over `num_tokens` that spell `num_bytes`."""
        return cls(nll / num_tokens, nll / math.log(2) / num_bytes, int(num_tokens))
