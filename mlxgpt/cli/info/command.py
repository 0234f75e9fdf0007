"""`mlxgpt info`: the command. A model or an adapter -> facts -> a table, or one JSON object."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mlxgpt.cli.shell import command, import_heavy, table_console


def info(
    model: Annotated[
        str,
        typer.Argument(
            help="Run, model directory, GGUF file, adapter, or a model of the Hugging Face Hub."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what a model is, and whether it fits here."""
    import_heavy("mlxgpt.checkpoint", "mlxgpt.train")
    import json

    from mlxgpt.checkpoint.hub_preview import to_look_at
    from mlxgpt.cli.info.adapter import adapter_facts, adapter_rows, is_adapter
    from mlxgpt.cli.info.facts import model_facts
    from mlxgpt.cli.info.rows import model_rows

    with to_look_at(model) as look:
        _refuse_tokenizer(look.path)
        if is_adapter(look.path):
            facts, rows = adapter_facts(look.path), adapter_rows
        else:
            facts, rows = model_facts(look.path), model_rows
    facts = {"model": model, "path": str(look.path) if look.is_here else None, **facts}
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
    else:
        _print(rows(facts))


def _refuse_tokenizer(path: Path) -> None:
    from mlxgpt.errors import CheckpointError

    if os.path.isfile(path / "tokenizer.json") and not os.path.isfile(path / "config.json"):
        what = command("tokenizer", "info", path)
        raise CheckpointError(f"{path} holds a tokenizer and no model; for that: {what}")


def _print(rows: Sequence[tuple[str, str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in rows:
        table.add_row(name, Text(words))
    table_console().print(table)
