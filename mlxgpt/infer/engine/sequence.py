"""One text on its way through the engine: what was asked, what has been written. No MLX."""

from dataclasses import dataclass, field
from typing import Literal

from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.sampling import SamplingParams

FinishReason = Literal["stop", "length", "abort"]


@dataclass(eq=False)
class Sequence:
    """One of the `n` texts of a request."""

    request_id: int
    choice: int
    """Which of the request's texts this is, from 0."""
    prompt_length: int
    token_ids: list[int]
    """The prompt and what was written after it; the last one is not in the cache yet."""
    params: SamplingParams
    """With the seed of this choice, and n = 1."""
    table: BlockTable = field(default_factory=BlockTable)
    finish_reason: FinishReason | None = None
    arrival: tuple[int, int] = (0, 0)
    """Its place in the order of service, given by the scheduler: the choices of a request come one
    after another, and keep their places when they are preempted."""
    computed: int = 0
    """The most of its tokens that have ever been in the cache; below, computing is repetition."""
    indexed: int | None = 0
    """How many tokens of its table the prefix index has been told of; None: it must not be told of
    any, since they were computed with other weights."""

    @property
    def generated(self) -> int:
        """How many tokens have been written."""
        return len(self.token_ids) - self.prompt_length

    @property
    def longest(self) -> int:
        """How many tokens the text can become, the prompt included."""
        return self.prompt_length + self.params.max_tokens

    @property
    def decoding(self) -> bool:
        """Whether all tokens but the last are in the cache."""
        return self.table.length == len(self.token_ids) - 1
