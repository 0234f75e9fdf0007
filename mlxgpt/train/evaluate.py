"""Sums over a text -> what is reported of it: loss per token and bits per byte."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Evaluation:
    """What a model makes of a text."""

    loss: float
    """Mean negative log-likelihood of a target token, in nats."""
    bits_per_byte: float | None
    """The same in bits, per byte of text: comparable between tokenizers. None: there is no text."""
    num_tokens: int
    """How many target tokens it is the mean of."""

    @classmethod
    def of(cls, nll: float, num_tokens: float, num_bytes: float) -> "Evaluation":
        """Return the means for a sum of `nll` nats over `num_tokens` that spell `num_bytes`."""
        bits = nll / math.log(2) / num_bytes if num_bytes else None
        return cls(nll / num_tokens, bits, int(num_tokens))
