"""How much is measured: the full run takes about three minutes, the quick one some seconds."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Sizes of a run."""

    vocab_size: int
    text_bytes: int
    """Of each text, at most."""
    rounds: int
    """Of encoding, counted ones."""
    warmup: int
    hand: int
    """Documents of about 20 KB in a round, at most."""
    training_rounds: int
    by_cpu: bool = False
    """Whether CPU time is the time, but for threads and cold starts."""

    def titled(self, title: str) -> str:
        """Return the title of figures that are by this clock."""
        return f"{title}, by CPU time" if self.by_cpu else title

    cold_starts: tuple[str, ...]
    """Which kernels are compiled, for what purpose."""
    keep: bool
    """Whether the figures are worth keeping, in `benchmarks/results/`."""


FULL = Settings(
    vocab_size=32_768,
    text_bytes=20_000_000,
    rounds=10,
    warmup=1,
    hand=50,
    training_rounds=3,
    cold_starts=("encoding", "training"),
    keep=True,
)
QUICK = Settings(
    vocab_size=1_000,
    text_bytes=700_000,
    rounds=2,
    warmup=1,
    hand=3,
    training_rounds=1,
    cold_starts=("training",),
    keep=False,
)
