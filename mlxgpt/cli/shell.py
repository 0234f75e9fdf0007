"""What the user typed and will type: the name of this command, paths, Ctrl-C; and notes to them."""

import contextlib
import functools
import importlib
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TextIO, TypeVar

import typer

from mlxgpt.errors import DataError, MLXGPTWarning

if TYPE_CHECKING:
    from rich.console import Console

P = ParamSpec("P")
R = TypeVar("R")


def command(*words: str | Path) -> str:
    """Return a command line that works where this one did, by name or by path."""
    called = sys.argv[0]
    if os.path.basename(called) == "__main__.py":
        return shlex.join([sys.executable, "-m", "mlxgpt", *map(str, words)])
    on_path = shutil.which("mlxgpt")
    by_path = os.path.basename(called) == "mlxgpt" and os.sep in called
    if not by_path or (on_path and os.path.samefile(on_path, called)):
        return shlex.join(["mlxgpt", *map(str, words)])
    return shlex.join([min(called, os.path.relpath(called), key=len), *map(str, words)])


def interruptible(function: Callable[P, R]) -> Callable[P, R]:
    """Let Ctrl-C end a command with one line and code 130, which typer would do without a word.

    Our own warnings are shown as notes while it runs.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with warnings_as_notes():
                return function(*args, **kwargs)
        except KeyboardInterrupt:
            print("\nmlxgpt: interrupted", file=sys.stderr)
            raise typer.Exit(130) from None

    return wrapped


def import_heavy(*modules: str) -> None:
    """Import modules that use MLX; a Ctrl-C in the middle could abort the process, or be lost."""
    from mlxgpt.machine.interrupts import held_interrupts

    with held_interrupts():
        for module in modules:
            importlib.import_module(module)


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Show each `MLXGPTWarning` once, as a line `note: ...` on stderr, and no other warning."""
    told: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not issubclass(category, MLXGPTWarning):
                usual(message, category, filename, lineno, file, line)
                return
            text = " ".join(str(message).split())
            if text not in told:
                told.add(text)
                print(f"note: {text}", file=sys.stderr)

        warnings.simplefilter("always", MLXGPTWarning)  # by place, one of two texts would be lost
        warnings.showwarning = show
        yield


def given_text(argument: str) -> str:
    """Return the text of an argument, or that of standard input for `-`.

    Raises `DataError` for bytes that are not UTF-8, wherever they come from.
    """
    if argument == "-":
        return read_stdin()
    # Python hides such bytes of a command line in halves of surrogate pairs.
    if any("\udc80" <= character <= "\udcff" for character in argument):
        raise DataError("the text on the command line is not UTF-8; is this terminal set to it?")
    return argument


def read_stdin() -> str:
    """Return standard input as text. Raises `DataError` if it is closed or not UTF-8."""
    if sys.stdin is None:
        raise DataError("standard input is closed; give the text on the command line")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as e:
        raise DataError(f"standard input is not UTF-8 (at byte {e.start})") from e


def table_console() -> "Console":
    """Return a console for tables: as wide as the terminal, and without one as wide as it takes."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)
