"""What comes out of the engine: the new tokens of a step, or a whole text."""

from dataclasses import dataclass, field
from typing import Protocol

from mlxgpt.infer.engine.sequence import FinishReason
from mlxgpt.infer.sampling import TokenLogprobs


class TextDecoder(Protocol):
    """Ids -> text, piece by piece; a tokenizer's stream decoder is one."""

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id."""
        ...

    def finish(self) -> str:
        """Return what is left."""
        ...


@dataclass(frozen=True)
class Output:
    """What a step gave to one text."""

    request_id: int
    choice: int
    """Which of the request's `n` texts this is."""
    token_ids: list[int]
    """The new tokens; a stop id is among them."""
    text: str
    """What may be shown now, empty if the engine has no decoder. What may be the beginning of a
    stop string is held back; a stop id and a stop string have no text."""
    logprobs: list[TokenLogprobs] | None
    """One per new token, if the request asked for them."""
    finish_reason: FinishReason | None
    """Set in the last output of a text: "stop" (id or string), "length" (max_tokens), "abort"."""


@dataclass
class Completion:
    """One finished text."""

    request_id: int
    choice: int
    prompt_tokens: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    ttft: float | None = None
    """Seconds from `add` to the first token."""
    seconds: float = 0.0
    """Seconds from `add` to the last token."""

    def take(self, output: Output, since: float) -> None:
        """Add what a step gave, `since` seconds after the request came."""
        if output.token_ids and self.ttft is None:
            self.ttft = since
        self.token_ids += output.token_ids
        self.text += output.text
        if output.logprobs is not None:
            self.logprobs = (self.logprobs or []) + output.logprobs
        self.finish_reason = output.finish_reason
        self.seconds = since
