"""Entrants x rounds of fresh text -> MB/s of each, in turn, and whether all gave the same ids."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console

Encode = Callable[[Sequence[str]], Any]
"""Documents -> the ids of each; whatever it gives back, the work is done by then."""


@dataclass(frozen=True)
class Entrant:
    """One library, one way to use it."""

    name: str
    run: Encode
    exact: bool = True
    """Whether its ids must be those of the reference; not so with dropout."""


@dataclass
class Pace:
    """What came of one entrant: one figure for each counted round."""

    rates: list[float] = field(default_factory=list)
    """MB/s."""
    cores: list[float] = field(default_factory=list)
    """CPU seconds of the whole process for each second on the clock."""
    compared: int = 0
    different: int = 0
    """Documents whose ids were compared with the reference's, and those that differed."""

    @property
    def rate(self) -> float:
        return median(self.rates)

    @property
    def ids(self) -> str:
        """Say how the ids compare with those of the reference."""
        if not self.compared:
            return ""
        if not self.different:
            return "equal"
        return f"{self.different} of {self.compared} documents DIFFER"

    def over(self, other: "Pace") -> list[float]:
        """Return how many times as fast as `other` it was, round by round."""
        return [a / b for a, b in zip(self.rates, other.rates, strict=True)]


def race(
    title: str,
    entrants: Sequence[Entrant],
    hands: Sequence[list[str]],
    *,
    warmup: int,
    reference: str | None = None,
    by_cpu: bool = False,
) -> dict[str, Pace]:
    """Let every entrant work on the same documents in each round; the first ones do not count.

    Each round begins with another entrant, so that none always follows the same one. The ids of
    every counted round are compared with those of the entrant named `reference`. `by_cpu` takes the
    process's CPU time for the time, which other users of the machine hardly change.
    """
    paces = {entrant.name: Pace() for entrant in entrants}
    with Console().status(title) as status:
        for number, documents in enumerate(hands):
            first = number % len(entrants)
            turn = [*entrants[first:], *entrants[:first]]
            status.update(f"{title} ({number + 1}/{len(hands)})")
            results = _timed(turn, documents, paces if number >= warmup else {}, by_cpu)
            if number >= warmup and reference:
                _check(turn, results, paces, reference)
    return paces


def _timed(
    turn: Sequence[Entrant], documents: list[str], paces: dict[str, Pace], by_cpu: bool
) -> dict[str, Sequence[Any]]:
    """Let each do its work, note how long it took where there is a pace, and return what it did."""
    megabytes = sum(len(d.encode()) for d in documents) / 1e6
    results = {}
    gc.collect()
    gc.disable()
    try:
        for entrant in turn:
            cpu, began = time.process_time(), time.perf_counter()
            results[entrant.name] = entrant.run(documents)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            if pace := paces.get(entrant.name):
                pace.rates.append(megabytes / (cpu if by_cpu else seconds))
                pace.cores.append(cpu / seconds)
    finally:
        gc.enable()
    return results


def _check(
    turn: Sequence[Entrant],
    results: dict[str, Sequence[Any]],
    paces: dict[str, Pace],
    reference: str,
) -> None:
    for entrant in turn:
        if entrant.exact and entrant.name != reference:
            pairs = zip(results[entrant.name], results[reference], strict=True)
            pace = paces[entrant.name]
            pace.compared += len(results[reference])
            pace.different += sum(not np.array_equal(a, b) for a, b in pairs)
