"""Cases -> interleaved rounds -> medians, spread and ratios, as a table and as JSON lines.

One process runs all peers of a benchmark in turn, round after round, so that a machine that slows
down slows all of them; that is why only the ratios of one run mean anything.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Case:
    """One way to do the work of a benchmark."""

    name: str
    run: Callable[[], Any]
    """Does the work once, to the end (lazy arrays evaluated). Where only a part of it counts, it
    returns the seconds of that part as a float."""
    work: float = 1.0
    """Units of work in one run."""


@dataclass
class Figures:
    """What came of one case: seconds of each counted round."""

    case: Case
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    title: str,
    cases: Sequence[Case],
    *,
    unit: str,
    rounds: int = 7,
    warmup: int = 2,
    note: str = "",
) -> list[Figures]:
    """Run all `cases` `warmup` + `rounds` times in turn, print the table and keep the figures.

    `unit` names what `Case.work` counts; the table shows units per second and the ratio of each
    median time to that of the first case (above 1 is slower).
    """
    console = Console()
    figures = [Figures(case) for case in cases]
    with console.status(title) as status:
        for i in range(warmup + rounds):
            for figure in figures:
                status.update(f"{title}: {figure.case.name} ({i + 1}/{warmup + rounds})")
                began = time.perf_counter()
                own = figure.case.run()
                if i >= warmup:
                    whole = time.perf_counter() - began
                    figure.seconds.append(own if isinstance(own, float) else whole)
    table = Table(title=title, title_justify="left", title_style="bold")
    for heading in ("", "median", "min - max", f"{unit}/s", "time ratio"):
        table.add_column(heading, justify="left" if not heading else "right")
    for figure in figures:
        low, high = min(figure.seconds), max(figure.seconds)
        table.add_row(
            figure.case.name,
            _time(figure.median),
            f"{_time(low)} - {_time(high)}",
            f"{figure.case.work / figure.median:,.3g}"
            if figure.case.work / figure.median < 100
            else f"{figure.case.work / figure.median:,.0f}",
            f"{figure.median / figures[0].median:.2f}",
        )
    console.print(table)
    if note:
        console.print(note, highlight=False)
    console.print()
    for figure in figures:
        record(
            title,
            case=figure.case.name,
            unit=unit,
            work=figure.case.work,
            median_s=figure.median,
            seconds=figure.seconds,
            ratio=figure.median / figures[0].median,
        )
    return figures


def show(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str = "",
    *,
    keep: bool = True,
) -> None:
    """Print a table of figures that are not times, and keep them if they are worth it."""
    console = Console()
    table = Table(title=title, title_justify="left", title_style="bold")
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left")
    for row in rows:
        table.add_row(*row)
        if keep:
            record(title, **dict(zip(headings, row, strict=True)))
    console.print(table)
    if note:
        console.print(note, highlight=False)
    console.print()


def record(benchmark: str, **figures: Any) -> None:
    """Append one JSON line with the conditions to `benchmarks/results/`."""
    RESULTS.mkdir(exist_ok=True)
    line = {"benchmark": benchmark, **figures, **conditions()}
    with (RESULTS / "results.jsonl").open("a", encoding="utf-8") as f:
        f.write(json.dumps(line) + "\n")


@cache
def conditions() -> dict[str, Any]:
    """Return the machine, the versions and the commit that a figure belongs to."""
    from mlxgpt.machine.blas import blas_in_use
    from mlxgpt.machine.device import describe_device

    device = describe_device()
    packages = ("mlx", "mlx-lm", "torch", "numpy", "numba", "tokenizers")
    packages += ("tiktoken", "gigatoken", "fastokens", "rustbpe", "gigabpe")
    return {
        "machine": f"{device.chip}, {device.cores} cores, {device.device}, {device.os}",
        "blas": blas_in_use().name,
        "versions": {name: v for name in packages if (v := _version(name))},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def print_conditions() -> None:
    """Print what every run begins with."""
    facts = conditions()
    versions = ", ".join(f"{name} {v}" for name, v in facts["versions"].items())
    print(f"{facts['machine']}\n{facts['blas']}; {versions}; commit {facts['commit']}\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    command = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
