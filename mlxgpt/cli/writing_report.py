"""When tokens came, and what was counted meanwhile -> one line about speed."""

import time
from collections.abc import Callable
from dataclasses import fields

from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.engine.statistics import Statistics


class WritingReport:
    """Watches one prompt being answered."""

    def __init__(
        self, statistics: Statistics, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Begin now; `statistics` are those of the writer so far."""
        self._before = _counts(statistics)
        self._clock = clock
        self._began = clock()
        self._first: float | None = None
        self._last = self._began
        self._with_first = 0
        self.written = 0
        """Tokens so far, in all texts."""

    def take(self, output: Output) -> None:
        """Note that a step gave this."""
        if not output.token_ids:
            return
        self._last = self._clock()
        if self._first is None:
            self._first, self._with_first = self._last, len(output.token_ids)
        self.written += len(output.token_ids)

    def line(
        self,
        statistics: Statistics,
        prompt_tokens: int,
        *,
        texts: int = 1,
        more: str = "",
        known: bool = False,
    ) -> str:
        """Return the line; `statistics` are those of the writer now, `more` is its end.
        `known` says how much of the prompt was found in the cache."""
        counts = {name: now - self._before[name] for name, now in _counts(statistics).items()}
        found = counts["shared_tokens"]
        shared = f" ({found:,} of them known)" if known and found else ""
        several = f" in {texts} texts" if texts > 1 else ""
        parts = [f"{prompt_tokens} prompt tokens{shared}, {self.written} written{several}"]
        if self._first is not None:
            ms = 1000 * (self._first - self._began)
            parts.append(f"first after {ms:,.0f} ms{self._speed(self._first)}")
        if counts["drafted_tokens"]:
            parts.append(guesses(counts["accepted_tokens"], counts["drafted_tokens"]))
            per_pass = counts["generated_tokens"] / max(1, counts["decoding_rows"])
            parts[-1] += f", {per_pass:.1f} tokens a pass"
        return "[" + "; ".join([*parts, *([more] if more else [])]) + "]"

    def _speed(self, first: float) -> str:
        seconds, count = self._last - first, self.written - self._with_first
        if count <= 0 or seconds <= 0:
            return ""
        rate = count / seconds
        return f", then {rate:,.{1 if rate < 10 else 0}f} tok/s"


def guesses(accepted: int, drafted: int) -> str:
    """Return how many of the guesses were right, in words."""
    return f"{100 * accepted / drafted:.0f} % of guesses kept"


def _counts(statistics: Statistics) -> dict[str, int]:
    values = {f.name: getattr(statistics, f.name) for f in fields(statistics)}
    return {name: value for name, value in values.items() if isinstance(value, int)}
