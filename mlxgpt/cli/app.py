"""The `mlxgpt` command: each subcommand in a file of its own, errors as one line.

Whatever is heavy is imported inside the commands, so that `mlxgpt --help` answers at once.
"""

import logging
import os
import sys
from typing import Annotated

import click
import typer

from mlxgpt import __version__
from mlxgpt.cli import tokenizer
from mlxgpt.cli.doctor import doctor
from mlxgpt.cli.generate import generate
from mlxgpt.cli.train import train
from mlxgpt.errors import MLXGPTError

app = typer.Typer(
    name="mlxgpt",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command()(generate)
app.add_typer(tokenizer.app, name="tokenizer")
app.command()(doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mlxgpt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train GPT language models on your own machine, and let them write."""


def main() -> None:
    """Run the command line: 0 done, 1 a fault of ours, 2 a mistake that the message explains."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("mlxgpt: note: %(message)s"))
    logging.getLogger("mlxgpt").addHandler(handler)
    try:
        code = app(standalone_mode=False)
    except (MLXGPTError, click.ClickException) as e:
        text = e.format_message() if isinstance(e, click.ClickException) else str(e)
        print(f"mlxgpt: error: {' '.join(text.split())}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        print("mlxgpt: interrupted", file=sys.stderr)
        code = 130
    except BrokenPipeError:  # `mlxgpt ... | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)
