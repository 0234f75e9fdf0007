"""`mlxgpt doctor`: this computer -> what mlxgpt finds on it, if it computes right, and hints."""

from typing import TYPE_CHECKING, Annotated

import typer

from mlxgpt.cli.device_checks import MODULES, failures, print_checks, run_checks
from mlxgpt.cli.shell import import_heavy, table_console

if TYPE_CHECKING:
    from mlxgpt.machine.checkup import Checkup
    from mlxgpt.machine.device_check import DeviceCheck


def doctor(
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for scripts.")
    ] = False,
) -> None:
    """Show what this machine is, and whether it computes right.

    The last is a table of comparisons; if one fails, the exit code is 1.
    """
    import_heavy("mlxgpt.machine.checkup", *MODULES)
    from mlxgpt.machine.checkup import examine  # imports MLX
    from mlxgpt.text.compiled.tier import kernel_state

    checkup, kernels, checks = examine(), kernel_state(), run_checks()
    if json:
        import json as encoder

        report = {**checkup.to_dict(), "tokenizer": kernels}
        print(encoder.dumps(report | {"checks": [c.to_dict() for c in checks]}, indent=2))
    else:
        _print_report(checkup, kernels, checks)
    if failures(checks):
        raise typer.Exit(1)


def _print_report(checkup: "Checkup", kernels: str, checks: "list[DeviceCheck]") -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in [*_rows(checkup), ("tokenizer", kernels)]:
        table.add_row(name, escape(value))
    console = table_console()
    console.print(table)
    console.print()
    print_checks(console, checks)
    for hint in checkup.hints:
        line = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
        line.add_row("[yellow]hint[/]", escape(hint))
        console.print(line)
    failed = failures(checks)
    if failed:
        console.print(
            f"[bold red]failed[/] {failed} of {len(checks)} checks: do not trust what this device "
            "computes there, and please report this page"
        )
    elif not checkup.hints:
        console.print("[green]ok[/] everything is as it should be")


def _rows(checkup: "Checkup") -> list[tuple[str, str]]:
    from mlxgpt import __version__

    device, blas, compiler = checkup.device, checkup.blas, checkup.compiler
    speed = [f"{value:,.0f} GFLOP/s in {dtype}" for dtype, value in checkup.gflops.items()]
    threads = f", {blas.threads} {_plural(blas.threads, 'thread')}" if blas.threads else ""
    core = f" ({blas.core} kernels)" if blas.core else ""
    rows = [
        ("device", device.device),
        ("chip", f"{device.chip}, {device.cores} {_plural(device.cores, 'core')}"),
        ("memory", f"{_gib(checkup.memory_total)}, {_gib(checkup.memory_available)} available"),
        ("GPU memory", f"{_gib(device.gpu_memory)} recommended at most"),
        ("system", device.os),
        ("versions", f"mlxgpt {__version__}, MLX {device.mlx}, Python {device.python}"),
        ("BLAS", f"{blas.name}{core}{threads}\n{blas.why}"),
        ("matrix product", "\n".join(speed)),
        ("mx.compile", f"{_compiler_line(checkup)}\n{compiler.why}"),
        ("cache", f"{checkup.cache} ({_size(checkup.cache_bytes)})"),
    ]
    return [row for row in rows if row[0] != "GPU memory" or device.gpu_memory]


def _compiler_line(checkup: "Checkup") -> str:
    if not checkup.compiler:
        return "not used"
    return f"works, equals eager{', ' + checkup.compiler.path if checkup.compiler.path else ''}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else noun + "s"


def _gib(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"


def _size(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB" if count < 2**30 else _gib(count)
