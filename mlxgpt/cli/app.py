"""The `mlxgpt` command: each subcommand in a file of its own, errors as one line.

Whatever is heavy is imported inside the commands, so that `mlxgpt --help` answers at once.
"""

import io
import logging
import os
import sys
from typing import Annotated

import typer

from mlxgpt import __version__
from mlxgpt.cli import data, tokenizer
from mlxgpt.cli.chat import chat
from mlxgpt.cli.doctor import doctor
from mlxgpt.cli.eval import evaluate
from mlxgpt.cli.export import export
from mlxgpt.cli.generate import generate
from mlxgpt.cli.info import info
from mlxgpt.cli.sft import sft
from mlxgpt.cli.shell import interruptible
from mlxgpt.cli.train import train
from mlxgpt.errors import MLXGPTError, one_line

# typer carries a click of its own, whose errors are not those of the package `click`.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]  # type: ignore[assignment]

_LONGEST = 2000
"""Characters of a message at most."""

app = typer.Typer(
    name="mlxgpt",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(interruptible(train))
app.command()(interruptible(sft))
app.command()(interruptible(generate))
app.command()(interruptible(chat))
app.command("eval")(interruptible(evaluate))
app.command()(interruptible(export))
app.add_typer(data.app, name="data")
app.add_typer(tokenizer.app, name="tokenizer")
app.command()(interruptible(info))
app.command()(interruptible(doctor))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"mlxgpt {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 (its callback has acted)
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train GPT language models on your own machine, and let them write."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line: 0 done, 1 a fault of ours, 2 a mistake that the message explains."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (closed by `>&-`)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # what a terminal's encoding cannot show
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("mlxgpt: note: %(message)s"))
    logging.getLogger("mlxgpt").addHandler(handler)
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:  # `mlxgpt ... | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _run() -> int:
    try:
        return app(standalone_mode=False) or 0
    except MLXGPTError as e:
        return _refuse(str(e))
    except (KeyboardInterrupt, typer.Abort):
        print("mlxgpt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except OSError as e:  # a full disk, a folder that may not be written: the world's, not ours
        return _refuse(f"{e.filename}: {e.strerror}" if e.filename and e.strerror else str(e))
    except _CommandLineError as e:
        if type(e).__name__ == "NoArgsIsHelpError":  # `mlxgpt tokenizer` alone
            print(e)
            return 0
        return _refuse(e.format_message())  # type: ignore[attr-defined]


def _refuse(message: str) -> int:
    print(f"mlxgpt: error: {one_line(' '.join(message.split()), _LONGEST)}", file=sys.stderr)
    return 2
