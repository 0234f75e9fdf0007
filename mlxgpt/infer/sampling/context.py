"""What the choice of a token depends on, beside the logits. No MLX."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlxgpt.infer.sampling.params import SamplingParams


@dataclass(frozen=True)
class Context:
    """One row of logits: how its token is chosen, and what stands before it."""

    params: SamplingParams
    prompt_ids: Sequence[int]
    generated_ids: Sequence[int]
    """Written after the prompt so far; looked at for penalties only."""
