"""`mlxgpt tokenizer`: train one from a corpus, try it on a text, look into it."""

import typer

from mlxgpt.cli.shell import interruptible
from mlxgpt.cli.tokenizer.compare import compare
from mlxgpt.cli.tokenizer.ids import decode, encode
from mlxgpt.cli.tokenizer.info import info
from mlxgpt.cli.tokenizer.show import show
from mlxgpt.cli.tokenizer.train import train

app = typer.Typer(
    help="Train a tokenizer, or see what one does.", no_args_is_help=True, rich_markup_mode=None
)
app.command()(interruptible(train))
app.command()(interruptible(encode))
app.command()(interruptible(decode))
app.command()(interruptible(show))
app.command()(interruptible(compare))
app.command()(interruptible(info))
