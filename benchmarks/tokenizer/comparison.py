"""Paces of two entrants -> how many times as fast, with the spread and the target, as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.harness import record
from benchmarks.tokenizer.race import Pace
from benchmarks.tokenizer.settings import Settings
from benchmarks.tokenizer.texts import KINDS, Text


@dataclass(frozen=True)
class Comparison:
    """Two entrants of a race, and how many times as fast the first one should be."""

    ours: str
    theirs: str
    targets: tuple[float | None, float | None, float | None] = (None, None, None)
    """For each of `KINDS`; None where it is only reported."""


@dataclass(frozen=True)
class Row:
    """One comparison on one kind of text."""

    name: str
    kind: str
    ratios: tuple[float, ...]
    """Of each round."""
    target: float | None

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def met(self) -> bool:
        return self.target is None or self.ratio >= self.target

    def cell(self, judge: bool) -> str:
        """Write ratio, spread and target, one below the other, with a verdict if `judge`."""
        spread = f"{_figure(self.ratio)}\n{_figure(min(self.ratios))} - {_figure(max(self.ratios))}"
        if self.target is None:
            return spread
        verdict = (" met" if self.met else " MISSED") if judge else ""
        return f"{spread}\n{self.target:g}{verdict}"


def compare(text: Text, paces: dict[str, Pace], comparisons: Sequence[Comparison]) -> list[Row]:
    """Return a row for each comparison whose two entrants ran."""
    return [
        Row(
            f"{c.ours} / {c.theirs}",
            text.kind,
            tuple(paces[c.ours].over(paces[c.theirs])),
            c.targets[KINDS.index(text.kind)],
        )
        for c in comparisons
        if c.ours in paces and c.theirs in paces
    ]


def show_paces(
    title: str,
    text: Text,
    paces: dict[str, Pace],
    *,
    heading: str,
    remarks: dict[str, str],
    missing: Sequence[str] = (),
    note: str = "",
    threads: int = 1,
    keep: bool,
) -> None:
    """Print MB/s of each entrant, and keep the figures; `remarks` fills the column `heading`."""
    title = f"{title}, {text.kind}"
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("")
    for column in ("MB/s", "min - max", heading):
        table.add_column(column, justify="right")
    for name, pace in paces.items():
        spread = f"{_figure(min(pace.rates))} - {_figure(max(pace.rates))}"
        table.add_row(name, _figure(pace.rate), spread, remarks.get(name, ""))
        if keep:
            figures = {"rates": pace.rates, "cores": pace.cores, "remark": remarks.get(name, "")}
            record(title, case=name, unit="MB/s", text=text.origin, **figures)
    for name in missing:
        table.add_row(name, "", "", "not installed")
    console = Console()
    console.print(table)
    console.print(f"text: {text.origin}", highlight=False)
    if note:
        console.print(note, highlight=False)
    cores = {name: median(pace.cores) for name, pace in paces.items()}
    for name, busy in cores.items():
        if busy > threads + 0.25:
            console.print(f"UNFAIR: {name} kept {busy:.1f} cores busy, not {threads}")
    if (least := min(cores.values())) < 0.9:
        console.print(f"busy machine: not all had a core of their own, one only {least:.0%} of it")
    console.print()


def show_rows(rows: Sequence[Row], settings: Settings) -> None:
    """Print and keep the ratios of all texts, each with its spread and its target."""
    keep = settings.keep
    title = settings.titled("times as fast: median of the rounds' ratios, min - max, target")
    table = Table(title=title, title_justify="left", title_style="bold", show_lines=True)
    table.add_column("")
    for kind in KINDS:
        table.add_column(kind, justify="right")
    cells = {(row.name, row.kind): row.cell(judge=keep) for row in rows}
    for name in dict.fromkeys(row.name for row in rows):
        table.add_row(name, *(cells.get((name, kind), "") for kind in KINDS))
    for row in rows if keep else ():
        record(title, case=row.name, text=row.kind, ratios=row.ratios, target=row.target)
    console = Console()
    console.print(table)
    if keep:
        verdicts = [row.met for row in rows if row.target is not None]
        console.print(f"{sum(verdicts)} of {len(verdicts)} targets met\n", highlight=False)
    else:
        console.print("too little was measured to judge by\n")


def _figure(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"
