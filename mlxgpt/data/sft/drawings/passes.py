"""Items taken a few at a time, pass after pass: which of them a step takes, and how far that is."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Passes:
    """Each pass takes all `items`, `per_step` a step; no step mixes two passes.

    So the last step of a pass is short where they do not divide.
    """

    items: int
    per_step: int

    def __post_init__(self) -> None:
        assert self.items >= 1
        assert self.per_step >= 1

    @property
    def steps(self) -> int:
        """Steps of one pass."""
        return -(-self.items // self.per_step)

    def at(self, step: int) -> tuple[int, slice]:
        """Return the pass that `step` (from 0) belongs to, and the places in it that it takes."""
        which, inside = divmod(not_negative(step), self.steps)
        first = inside * self.per_step
        return which, slice(first, min(first + self.per_step, self.items))

    def done(self, steps: int) -> float:
        """Return how many passes the first `steps` steps are."""
        whole, inside = divmod(not_negative(steps), self.steps)
        return whole + inside * self.per_step / self.items

    def steps_in(self, passes: float) -> int:
        """Return after how many steps `passes` passes are done; at least 1."""
        whole = math.floor(passes)
        part = rounded_up((passes - whole) * self.items / self.per_step)
        return max(1, whole * self.steps + part)


def not_negative(step: int) -> int:
    """Return `step`, which is one. Raises `ValueError`."""
    if step < 0:
        raise ValueError(f"a step is not negative, got {step}")
    return step


def rounded_up(steps: float) -> int:
    """Return `steps` as a whole number; what is above one by a rounding error only is that one."""
    return math.ceil(steps - 1e-6)
