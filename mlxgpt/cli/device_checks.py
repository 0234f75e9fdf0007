"""The checks of this device that all parts of mlxgpt bring -> a table, and a verdict."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from mlxgpt.machine.device_check import DeviceCheck

MODULES = (
    "mlxgpt.machine.operation_checks",
    "mlxgpt.model.precision_checks",
    "mlxgpt.train.step_checks",
    "mlxgpt.infer.paged.kernel_checks",
)


def run_checks() -> "list[DeviceCheck]":
    """Make all checks; takes a second or two, and some more where kernels have to be compiled."""
    from mlxgpt.infer.paged.kernel_checks import check_kernel
    from mlxgpt.machine.operation_checks import check_operations
    from mlxgpt.model.precision_checks import check_precisions
    from mlxgpt.train.step_checks import check_training

    return [*check_operations(), *check_precisions(), *check_training(), *check_kernel()]


def failures(checks: "Sequence[DeviceCheck]") -> int:
    """Return how many checks failed."""
    return sum(check.state == "failed" for check in checks)


def print_checks(console: "Console", checks: "Sequence[DeviceCheck]") -> None:
    """Print a table, under a heading for each kind of comparison."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("check", no_wrap=True)
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for compared, some in groupby(checks, key=lambda check: check.compared):
        table.add_row(f"[bold]{escape(compared)}[/]")
        for check in some:
            style = {"ok": "green", "failed": "bold red", "skipped": "dim"}[check.state]
            reason = f": {escape(check.reason)}" if check.reason else ""
            numbers = (_number(check.difference), _number(check.allowed))
            state = f"[{style}]{check.state}[/]{reason}"
            table.add_row(f"  {escape(check.name)}", *numbers, state)
    console.print(table)
    console.print()


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"
