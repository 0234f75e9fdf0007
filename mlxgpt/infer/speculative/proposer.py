"""Where guesses about the next tokens come from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import mlx.core as mx

if TYPE_CHECKING:  # the engine imports proposers
    from mlxgpt.infer.engine.sequence import Sequence


@dataclass(frozen=True)
class Draft:
    """Guesses for the next k tokens of one text."""

    token_ids: list[int]
    logprobs: mx.array | None
    """Log of the distribution that each was drawn from, (k, V) float32; None: not drawn, each was
    proposed for certain."""

    def first(self, count: int) -> "Draft":
        """Return the first `count` of these guesses, or all if there are fewer."""
        if count >= len(self.token_ids):
            return self
        logprobs = None if self.logprobs is None else self.logprobs[:count]
        return Draft(self.token_ids[:count], logprobs)


class Proposer(Protocol):
    """Guesses the next tokens of texts that are being decoded."""

    @property
    def num_ids(self) -> int | None:
        """Guesses are below it; None: they come from the text itself."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of the weights that guessing takes."""
        ...

    @property
    def draws(self) -> bool:
        """Whether guesses for texts with a temperature are drawn, with probabilities."""
        ...

    def propose(self, wanted: "Mapping[Sequence, int]") -> "dict[Sequence, Draft]":
        """Return guesses, at most as many as wanted; a text without any may be missing."""
        ...

    def forget(self, sequence: "Sequence") -> None:
        """The text has left the engine, or was preempted."""
        ...
