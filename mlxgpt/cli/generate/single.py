"""One prompt -> one text as it is written, or several, one after the other."""

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace

from mlxgpt.cli.acceleration import WriterPlan
from mlxgpt.cli.generate.asking import Asking
from mlxgpt.cli.opened_model import seen_at_once
from mlxgpt.cli.writers import follow
from mlxgpt.cli.writing_report import WritingReport
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.infer.engine.completion import Output
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT


class TextsInTurn:
    """Texts that are written side by side -> printed one after the other, the current one live."""

    def __init__(self, beginnings: Sequence[str], write: Callable[[str], object]) -> None:
        """`beginnings` are what stands before each text."""
        self._held = list(beginnings)
        self._ended = [False] * len(beginnings)
        self._current = 0
        self._write = write
        self._show()

    def take(self, output: Output) -> None:
        """Print what a step gave, or keep it until its text's turn comes."""
        self._held[output.choice] += output.text
        if output.finish_reason is not None:
            self._held[output.choice] += "\n"
            self._ended[output.choice] = True
        self._show()

    def _show(self) -> None:
        while self._current < len(self._held):
            self._write(self._held[self._current])
            self._held[self._current] = ""
            if not self._ended[self._current]:
                return
            self._current += 1


def write_texts(asking: Asking, text: str, params: SamplingParams, plan: WriterPlan) -> None:
    """Print the texts that go on from `text`, or answer it, and on standard error a report."""
    asked = asking.of_text(text)
    params = replace(params, stop_ids=params.stop_ids | asked.stop_ids)
    network = asking.model.load()
    seen = seen_at_once(network)
    if isinstance(network, GPT) and seen is not None and len(asked.ids) > seen:
        warnings.warn(
            f"the prompt has {len(asked.ids):,} tokens; the model sees the last {seen:,} at a time",
            MLXGPTWarning,
            stacklevel=1,
        )
    writer = plan.writer(network, alone=params.n == 1)
    report = WritingReport(writer.statistics)
    request = writer.add(asked.ids, params, asked.after)
    texts = TextsInTurn([_heading(params, i) + asked.shown for i in range(params.n)], _write)
    for output in follow(writer, request, params.n):
        report.take(output)
        texts.take(output)
    if report.written:
        seed = f"seed {params.seed}"
        line = report.line(writer.statistics, len(asked.ids), texts=params.n, more=seed)
        print(line, file=sys.stderr)


def _heading(params: SamplingParams, choice: int) -> str:
    """Return the line before a text, if there are several; its seed writes this one alone again."""
    if params.n == 1:
        return ""
    return f"--- text {choice + 1} of {params.n}, seed {params.choice(choice).seed} ---\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
