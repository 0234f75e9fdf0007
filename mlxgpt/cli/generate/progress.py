"""Prompts done so far -> a live line in a terminal, plain lines elsewhere, and a last one."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mlxgpt.cli.writers import Writer
from mlxgpt.cli.writing_report import guesses
from mlxgpt.infer.engine.statistics import Statistics

_PLAIN_SECONDS = 15.0
"""Between two plain lines where there is no terminal to keep a live one in."""

_LIVE_SECONDS = 0.2
"""Between two changes of the live line while no prompt is finished."""


class PromptsProgress:
    """Shows on standard error how many prompts are done, and how fast it goes."""

    def __init__(self, total: int, kept: int) -> None:
        """`kept` of the `total` prompts were done before."""
        self.done = kept
        self._kept = kept
        self._total = total
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("prompts"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, completed=kept, numbers="")
        self._began = self._printed = self._shown = time.monotonic()
        if kept:
            self.say(f"{kept} of {total} prompts were done before and are kept")

    def __enter__(self) -> "PromptsProgress":
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def update(self, done: int, writer: Writer) -> None:
        """Show that `done` more prompts are done, and the numbers of their writer."""
        self.done += done
        if not done and time.monotonic() - self._shown < _LIVE_SECONDS:
            return
        self._shown = time.monotonic()
        numbers = self._numbers(writer.statistics)
        self._bar.update(self._task, completed=self.done, numbers=numbers)
        if not self._console.is_terminal and time.monotonic() - self._printed > _PLAIN_SECONDS:
            self.say(f"{self.done} of {self._total} prompts  {numbers}")

    def finish(self, statistics: Statistics) -> None:
        """Leave one line that says what was done."""
        self._bar.stop()
        parts = [f"{self.done - self._kept} prompts"]
        if self._kept:
            parts[0] += f" and {self._kept} kept"
        parts.append(f"{statistics.generated_tokens:,} tokens written")
        parts.append(
            f"{time.monotonic() - self._began:,.1f} s, {self._numbers(statistics, most=True)}"
        )
        if statistics.preemptions:
            parts.append(f"{statistics.preemptions} preemptions")
        self.say("[" + "; ".join(parts) + "]")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._console.print(line, markup=False, soft_wrap=True)
        self._printed = time.monotonic()

    def _numbers(self, statistics: Statistics, *, most: bool = False) -> str:
        seconds = time.monotonic() - self._began
        speed = statistics.generated_tokens / seconds if seconds > 0 else 0.0
        parts = [f"{speed:,.0f} tok/s"]
        if statistics.drafted_tokens:
            parts.append(guesses(statistics.accepted_tokens, statistics.drafted_tokens))
        blocks = statistics.most_blocks_used if most else statistics.blocks_used
        if blocks:
            parts.append(f"{blocks:,} blocks{' at most' if most else ''}")
        return ", ".join(parts)
