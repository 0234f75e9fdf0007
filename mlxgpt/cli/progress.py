"""Events of preparing and training -> a live line in a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from mlxgpt.train.evaluate import Evaluation
from mlxgpt.train.observer import StepReport

_PLAIN_SECONDS = 15.0
"""Between two plain lines where there is no terminal to keep a live one in."""


class TrainingProgress:
    """Shows the preparation as one bar per task, and the training as one bar with its numbers."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self._steps = 0
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[unit]}"),
            _TimeLeft(compact=True, elapsed_when_finished=True),
            console=self.console,
            disable=not self.console.is_terminal,
            expand=True,
        )
        self._tasks: dict[str, TaskID] = {}
        self._printed = time.monotonic()
        self._text = self._val = ""

    def __enter__(self) -> "TrainingProgress":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def prepare(self, what: str, done: int, total: int) -> None:
        """Show that `done` of `total` units of `what` are done."""
        if what not in self._tasks:
            for task in self._tasks.values():
                self._finish(task)
            self._tasks[what] = self._bars.add_task(what, total=total or None, unit="")
            self._plain(what)
        unit = f"{100 * done / total:3.0f} %" if total else ""
        self._bars.update(self._tasks[what], completed=done, total=total or None, unit=unit)

    def start_training(self, done: int, steps: int) -> None:
        """Replace the bars of the preparation by the one of the training, of `steps` steps."""
        self._steps = steps
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks = {}
        if done < self._steps:
            task = self._bars.add_task("compiling", total=self._steps, completed=done, unit="")
            self._tasks = {"training": task}

    def stepped(self, report: StepReport) -> None:
        self._text = f"step {report.step}/{self._steps}  loss {report.loss:.3f}"
        speed = f"{report.tok_per_sec:,.0f} tok/s"
        text = self._text + self._val
        self._bars.update(
            self._tasks["training"], completed=report.step, description=text, unit=speed
        )
        if time.monotonic() - self._printed > _PLAIN_SECONDS:
            self._plain(f"{text}  {speed}")

    def validated(self, step: int, evaluation: Evaluation) -> None:
        self._val = f"  val {evaluation.loss:.3f}"
        self._bars.update(self._tasks["training"], description=self._text + self._val)
        bits = evaluation.bits_per_byte
        per_byte = "" if bits is None else f"  {bits:.4f} bits/byte"
        self.console.print(f"step {step:>6}  validation loss {evaluation.loss:.4f}{per_byte}")
        self._printed = time.monotonic()

    def stopping(self) -> None:
        """Answer a Ctrl-C: the step that is being computed may take a while."""
        self.say("stopping after this step and saving; Ctrl-C again ends at once, without")

    def saved(self, step: int) -> None: ...

    def finish(self) -> None:
        """Leave the bar as it is; what is said from now on comes below it."""
        self._bars.stop()

    def say(self, line: str) -> None:
        """Print a line above the bars."""
        self.console.print(line, markup=False, soft_wrap=True)

    def _plain(self, line: str) -> None:
        if not self.console.is_terminal:
            self.console.print(line, markup=False, soft_wrap=True)
            self._printed = time.monotonic()

    def _finish(self, task: TaskID) -> None:
        total = self._bars.tasks[self._bars.task_ids.index(task)].total
        if total:
            self._bars.update(task, completed=total)


class _TimeLeft(TimeRemainingColumn):
    """`00:12 left`, and at the end the time that it took."""

    def render(self, task: Task) -> Text:
        time_left = super().render(task)
        return time_left if task.finished else time_left.append(" left")
