"""`mlxgpt data inspect`: one row as training sees it, and what a file of rows comes to."""

import json
from typing import TYPE_CHECKING, Annotated

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
from mlxgpt.cli.shell import import_heavy
from mlxgpt.cli.tokenizer.reading import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from mlxgpt.cli.data.inspected_row import InspectedRow
    from mlxgpt.cli.data.opened_rows import OpenedRows
    from mlxgpt.data.sft.report import Report


def inspect(
    rows: RowFile,
    model: BaseName,
    row: Annotated[
        int | None,
        typer.Option(min=1, help="Which row, counted from 1. [the first, and all in numbers]"),
    ] = None,
    template: TemplateName = None,
    max_length: MaxLength = None,
    overflow: Overflow = None,
    mask_prompt: MaskPrompt = None,
    turns: Turns = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids, too.")] = False,
    no_colour: Annotated[
        bool, typer.Option("--no-colour", "--no-color", help="Mark what is learned by signs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a row as training sees it, with what is learned of it in colour.

    What cannot be seen is spelled: \\n, \\x1b. A backslash before a control token: it is text.
    """
    from mlxgpt.errors import ConfigError

    if as_json and no_colour:
        raise ConfigError("--no-colour has no effect beside --json, which has no colours")
    import_heavy("mlxgpt.cli.data.opened_rows")
    from mlxgpt.cli.data.inspected_row import inspect_row
    from mlxgpt.cli.data.opened_rows import OpenedRows

    settings = {
        "template": template,
        "max_length": max_length,
        "overflow": overflow,
        "mask_prompt": mask_prompt,
        "turns": turns,
    }
    opened = OpenedRows(rows, model, settings)
    inspected = inspect_row(opened, 1 if row is None else row)
    report = _report(opened) if row is None else None
    if as_json:
        facts = inspected.facts(with_ids=ids)
        if report is not None:
            facts["report"] = report.facts()
        typer.echo(json.dumps(facts))  # in ASCII: no terminal takes a sign of it for a command
        return
    from rich.console import Console

    console = Console(highlight=False)
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    _print(console, inspected, colour=coloured and not no_colour, with_ids=ids)
    if report is not None:
        _print_report(console, report)


def _report(opened: "OpenedRows") -> "Report":
    with progress_bar() as bar:
        task = bar.add_task("reading rows", total=None)
        return opened.load(
            0, lambda done, total: bar.update(task, completed=done, total=total or None)
        ).report


def _print(console: "Console", row: "InspectedRow", *, colour: bool, with_ids: bool) -> None:
    from rich.text import Text

    from mlxgpt.cli.data.supervised_text import SupervisedText
    from mlxgpt.data.sft.example import Example
    from mlxgpt.errors import one_line

    literals = list(row.opened.tokenizer.special_tokens)
    shown = SupervisedText(literals, colour=colour, width=console.width)
    lines = [Text()]
    if isinstance(row.result, Example):
        lines += shown.lines(row.stretches())
        if with_ids:
            numbers = (row.result.ids.tolist(), row.result.supervised.tolist())
            lines += [Text(), *shown.numbers(*numbers)]
    else:
        as_json = json.dumps(row.raw.value, ensure_ascii=False)
        lines += shown.plain(one_line(as_json, len(as_json)))
    for name, words in _in_words(row, shown.legend):
        console.print(_printable(f"{name:10} {words}"), markup=False, soft_wrap=True)
    for line in lines:
        console.print(line, soft_wrap=True)


def _in_words(row: "InspectedRow", legend: str) -> list[tuple[str, str]]:
    """Return what stands above the text: (what, in words)."""
    from mlxgpt.data.sft.encoder import Unusable

    result, config = row.result, row.opened.config
    limit = f"{row.opened.max_length:,} are allowed"
    if isinstance(result, Unusable):
        long = f" ({row.whole:,} tokens, {limit})" if row.whole > row.opened.max_length else ""
        how = [("left out", result.reason + long)]
    else:
        learned = f"{result.num_supervised:,} of them supervised ({legend})"
        how = [("tokens", f"{result.length:,}, {learned}")]
        if row.cut:
            side = "beginning" if config.overflow == "truncate-left" else "end"
            how.append(("cut", f"{row.cut:,} tokens at the {side}: {limit} (--max-length)"))
    ignored = f"the field{'s' * (len(row.ignored) > 1)} {', '.join(row.ignored)}"
    template = "none: a text is learned as it is" if row.is_text else row.opened.chosen.name
    return [
        (f"row {row.number:,}", f"{row.raw.where}, {row.what}"),
        ("template", template),
        *how,
        *([("ignored", ignored)] if row.ignored else []),
        *(("note", note) for note in row.opened.chosen.notes if not row.is_text),
    ]


def _print_report(console: "Console", report: "Report") -> None:
    console.print()
    for line in report.lines():
        console.print(_printable(line), markup=False, soft_wrap=True)


def _printable(line: str) -> str:
    from mlxgpt.errors import one_line

    return one_line(line, 2000)
