"""`mlxgpt data histogram`: which lengths each pack mode draws, as a table and a picture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxgpt.cli.data.arguments import (
    AsJson,
    BaseName,
    MaskPrompt,
    MaxLength,
    Overflow,
    RowFile,
    TemplateName,
    Turns,
)
from mlxgpt.cli.shell import import_heavy, table_console
from mlxgpt.cli.tokenizer.reading import progress_bar

if TYPE_CHECKING:
    from mlxgpt.cli.data.opened_rows import OpenedRows
    from mlxgpt.data.sft.histogram import Histogram

    Drawn = list[tuple[str, Histogram]]

DEFAULT_OUT = Path("histogram.png")
_MODES = ("none", "sample", "bucket")
"""What is shown, to compare with; `sequence`, which takes each row once, takes the place of `none`,
which does the same."""
_LEAST_DRAWS = 100_000
"""So that the rarest row, too, is drawn about as often as it would be in the long run."""


def histogram(
    rows: RowFile,
    model: BaseName,
    pack_mode: Annotated[
        str, typer.Option(help="The mode to put in front: none, sequence, sample or bucket.")
    ] = "none",
    length_bucket: Annotated[int | None, typer.Option(help="Bins of bucket. [4]")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Rows of a step.")] = 4,
    draws: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"Draws to count. [whole passes over the rows, at least {_LEAST_DRAWS:,}]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides what is drawn.")] = 0,
    template: TemplateName = None,
    max_length: MaxLength = None,
    overflow: Overflow = None,
    mask_prompt: MaskPrompt = None,
    turns: Turns = None,
    out: Annotated[Path, typer.Option(metavar="FILE.png", help="The picture.")] = DEFAULT_OUT,
    as_json: AsJson = False,
) -> None:
    """Draw how often each pack mode takes rows of each length, and how many tokens that gives.

    CoV is how unlike the lengths are in what one of their rows brings: 0 if all bring the same.
    """
    from mlxgpt.errors import ConfigError

    if out.suffix.lower() != ".png":
        raise ConfigError(f"--out writes a PNG, so the name must end in .png; got {out}")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"--out: there is no folder {out.parent}")
    import_heavy("mlxgpt.cli.data.opened_rows")
    from mlxgpt.cli.data.histogram_plot import plot_histograms
    from mlxgpt.cli.data.opened_rows import OpenedRows

    settings = {
        "pack_mode": pack_mode,
        "template": template,
        "max_length": max_length,
        "overflow": overflow,
        "mask_prompt": mask_prompt,
        "turns": turns,
    }
    opened = OpenedRows(rows, model, settings)
    drawn, counted = _count(opened, length_bucket, batch, draws, seed)
    try:
        plot_histograms(drawn, f"{opened.file.name}: {_conditions(drawn, counted)}", out)
    except OSError as e:
        raise ConfigError(f"--out: cannot write {out}: {e.strerror or e}") from e
    if as_json:
        facts = {
            "file": str(opened.file),
            "model": model,
            "template": opened.chosen.name,
            "max_length": opened.max_length,
            "rows": int(drawn[0][1].examples.sum()),
            "draws": counted,
            "rows_per_step": batch,
            "seed": seed,
            "edges": drawn[0][1].edges.tolist(),
            "examples": drawn[0][1].examples.tolist(),
            "modes": {name: _facts(counts) for name, counts in drawn},
            "plot": str(out),
        }
        typer.echo(json.dumps(facts))
        return
    _print_table(drawn)
    typer.echo(f"\n{_conditions(drawn, counted)}, seed {seed}, {batch} rows a step")
    for note in opened.chosen.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"plot: {out}")


def _count(
    opened: "OpenedRows", length_bucket: int | None, batch: int, draws: int | None, seed: int
) -> tuple["Drawn", int]:
    """Return the counts of each mode, the one that was asked for first, and the draws of each."""
    from mlxgpt.data.sft.drawings import drawing_for
    from mlxgpt.data.sft.histogram import histogram

    asked = opened.config.pack_mode
    others = _MODES[1:] if asked == "sequence" else _MODES
    configs = {
        mode: replace(
            opened.config,
            pack_mode=mode,
            length_bucket=length_bucket if mode == "bucket" else None,
        )
        for mode in (asked, *others)  # what stands twice stays in front
    }
    with progress_bar() as bar:
        task = bar.add_task("reading rows", total=None)
        examples = opened.load(
            seed, lambda done, total: bar.update(task, completed=done, total=total or None)
        ).examples
    lengths = [example.length for example in examples]
    count = draws or len(lengths) * -(-_LEAST_DRAWS // len(lengths))
    drawn = []
    for name, config in configs.items():
        drawing = drawing_for(config, lengths, batch, opened.max_length, seed)
        drawn.append((name, histogram(lengths, drawing, count)))
    return drawn, count


def _print_table(drawn: "Drawn") -> None:
    """Print a line for each range of lengths in which there are rows."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    first = drawn[0][1]
    for title in ("tokens", "rows"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, _ in drawn:
        table.add_column(f"{name}\ndraws", justify="right", no_wrap=True)
        table.add_column("\ntokens", justify="right", no_wrap=True)
    for k in first.examples.nonzero()[0].tolist():
        low, high = int(first.edges[k]), int(first.edges[k + 1]) - 1
        cells = [str(low) if low == high else f"{low}-{high}", f"{int(first.examples[k]):,}"]
        for _, counts in drawn:
            cells += [f"{counts.frequency[k]:.1%}", f"{counts.token_share[k]:.1%}"]
        table.add_row(*cells)
    table.add_row(
        "CoV", "", *(cell for _, c in drawn for cell in (f"{c.variation:.3f}", "")), style="bold"
    )
    table_console().print(table)


def _conditions(drawn: "Drawn", draws: int) -> str:
    rows = int(drawn[0][1].examples.sum())
    return f"{draws:,} draws from {rows:,} row{'s' * (rows != 1)}"


def _facts(counts: "Histogram") -> dict[str, Any]:
    per_example = [None if x != x else x for x in counts.per_example.tolist()]
    return {
        "cov": counts.variation,
        "draws": counts.draws.tolist(),
        "frequency": counts.frequency.tolist(),
        "tokens": counts.tokens.tolist(),
        "token_share": counts.token_share.tolist(),
        "tokens_per_example": per_example,
    }
