"""How much an engine may use, and do at once."""

from dataclasses import dataclass

from mlxgpt.config import require


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Limits of an engine. Raises `ConfigError` for values without meaning."""

    kv_memory: int | None = None
    """Bytes for keys and values at most; None: half of what the machine has available. They are
    taken as they are needed."""
    block_size: int = 16
    """Tokens in a block."""
    max_num_seqs: int = 32
    """Texts that run at once."""
    max_step_tokens: int = 512
    """Tokens that one step computes at most: a long prompt is taken in over several."""
    prefix_sharing: bool = True
    """Keep the blocks of beginnings that were computed, for texts that begin in the same way."""
    num_draft_tokens: int = 8
    """Tokens that are guessed ahead at most, where there is a proposer."""
    adapt_draft: bool = True
    """Guess fewer where guesses fail, down to none; False: always `num_draft_tokens`."""

    def __post_init__(self) -> None:
        for name in ("block_size", "max_num_seqs", "max_step_tokens", "num_draft_tokens"):
            value = getattr(self, name)
            require(value >= 1, f"'{name}' must be at least 1; got {value}")
        require(
            self.kv_memory is None or self.kv_memory > 0,
            f"'kv_memory' must be above 0; got {self.kv_memory}",
        )
