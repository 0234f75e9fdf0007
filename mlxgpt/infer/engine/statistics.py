"""What an engine has done so far, counted."""

from dataclasses import asdict, dataclass


@dataclass
class Statistics:
    """Counts and seconds since the engine was made, or since `reset`."""

    requests: int = 0
    steps: int = 0
    """Forward passes of the model."""
    seconds: float = 0.0
    """Time spent in steps."""
    prompt_tokens: int = 0
    """Tokens of prompts, each counted once, computed or shared."""
    generated_tokens: int = 0
    computed_tokens: int = 0
    """Tokens that went through the model: prompts, recomputed ones, guesses."""
    shared_tokens: int = 0
    """Tokens of prompts that were found in the cache."""
    decoding_rows: int = 0
    """Forward passes times the texts that got a token in them."""
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    blocks_used: int = 0
    """Blocks that hold tokens of running texts now."""
    blocks_shared: int = 0
    """Of those, blocks in several texts."""
    blocks_kept: int = 0
    """Blocks kept for texts to come that begin in the same way."""
    most_blocks_used: int = 0
    """The most that `blocks_used` has been."""

    @property
    def tok_per_sec(self) -> float | None:
        """Generated tokens a second."""
        return self.generated_tokens / self.seconds if self.seconds else None

    @property
    def acceptance_rate(self) -> float | None:
        """Share of the guessed tokens that were kept; None if none were guessed."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens that a text gets from one forward pass, on average; 1 without guesses."""
        return self.generated_tokens / self.decoding_rows if self.decoding_rows else None

    def to_dict(self) -> dict[str, float | int | None]:
        """Return all of it, the derived rates included, for JSON."""
        rates = ("tok_per_sec", "acceptance_rate", "tokens_per_pass")
        return asdict(self) | {name: getattr(self, name) for name in rates}
