"""`mlxgpt data`: rows to fine-tune on, looked at before anything is trained."""

import typer

from mlxgpt.cli.data.histogram import histogram
from mlxgpt.cli.data.inspect import inspect
from mlxgpt.cli.shell import interruptible

app = typer.Typer(
    help="Look at rows as fine-tuning sees them.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(interruptible(inspect))
app.command()(interruptible(histogram))
