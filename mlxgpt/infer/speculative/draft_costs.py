"""What a guess costs, compared with the step that it may save: from timed steps. No MLX."""

from dataclasses import dataclass

from mlxgpt.config import require

_MEMORY = 0.97
"""Weight of what was known, at each new step: a step counts for some 30 more."""
_ENOUGH = 8
"""Steps to have seen before their times are believed."""


@dataclass(frozen=True, kw_only=True)
class DraftCosts:
    """Cost of one more guess; the unit is the step that every text takes one token further.

    The defaults are what a small model on a CPU takes, with guesses from the text itself.
    """

    checked: float = 0.1
    """By how much the step becomes dearer when every text brings one more token to be checked."""
    drafted: float = 0.0
    """What the proposer takes for one more guess for every text."""

    def __post_init__(self) -> None:
        for name in ("checked", "drafted"):
            value = getattr(self, name)
            require(
                0 <= value < float("inf"), f"'{name}' must be 0 or above, and finite; got {value}"
            )

    @classmethod
    def for_sizes(cls, draft: int, target: int) -> "DraftCosts":
        """Return costs that no clock decides: a model takes time in proportion to its weights, of
        which the draft model has `draft` bytes and the model itself `target`."""
        return cls(drafted=draft / target)

    def step(self, count: int) -> float:
        """Cost of a step with `count` guesses a text."""
        return 1.0 + count * (self.checked + self.drafted)


class StepTimes:
    """Learns the costs of guesses from the steps of an engine, the recent ones above all.

    A step is taken to last a + b * N seconds for N tokens (least squares, forgetting); checking one
    more token for each of R texts then costs b R / (a + b R) of a plain step.
    """

    def __init__(self, start: DraftCosts | None = None) -> None:
        self._start = start or DraftCosts()
        self._steps = 0
        self._sums = [0.0] * 5  # of 1, N, seconds, N * N, N * seconds
        self._rounds = self._drafting = 0.0

    def add_step(self, tokens: int, seconds: float) -> None:
        """A step computed `tokens` tokens, of all texts together, in `seconds`."""
        self._steps += 1
        new = (1.0, tokens, seconds, tokens * tokens, tokens * seconds)
        self._sums = [_MEMORY * old + more for old, more in zip(self._sums, new, strict=True)]

    def add_drafting(self, longest: int, seconds: float) -> None:
        """The proposer took `seconds` for guesses of which the longest had `longest` tokens."""
        if longest > 0:
            self._rounds = _MEMORY * self._rounds + longest
            self._drafting = _MEMORY * self._drafting + seconds

    def costs(self, texts: int) -> DraftCosts:
        """Return what a guess costs while `texts` texts are decoded together.

        The costs given at the start while there are too few steps, or all had the same number of
        tokens, from which no slope can be told.
        """
        n, x, y, xx, xy = self._sums
        spread = n * xx - x * x
        if self._steps < _ENOUGH or spread <= 1e-6 * n * xx or y <= 0:
            return self._start
        texts = max(texts, 1)
        slope = max((n * xy - x * y) / spread, 0.0)
        fixed = (y - slope * x) / n
        if fixed <= 0:  # the fit went below zero: all of the time belongs to the tokens
            fixed, slope = 0.0, y / x
        plain = fixed + slope * texts
        drafted = self._drafting / self._rounds / plain if self._rounds else self._start.drafted
        return DraftCosts(checked=slope * texts / plain, drafted=drafted)
