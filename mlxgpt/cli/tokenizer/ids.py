"""`mlxgpt tokenizer encode` and `decode`: text -> ids -> text."""

from typing import Annotated

import typer

from mlxgpt.cli.shell import given_text, read_stdin
from mlxgpt.cli.tokenizer.arguments import (
    AddSpecialTokens,
    AllowSpecial,
    DropoutRate,
    TextArgument,
    TokenizerPath,
    check_dropout,
)


def encode(
    path: TokenizerPath,
    text: TextArgument = "-",
    allow_special: AllowSpecial = False,
    add_special_tokens: AddSpecialTokens = False,
    dropout: DropoutRate = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Decides what --dropout drops.  [0]")
    ] = None,
) -> None:
    """Print the ids of a text, or of standard input, on one line."""
    from mlxgpt.errors import ConfigError
    from mlxgpt.text import Tokenizer

    if seed is not None and dropout is None:
        raise ConfigError("--seed has no meaning without --dropout: nothing else is random")
    tokenizer = Tokenizer.load(path)
    if dropout is not None:
        check_dropout(tokenizer)
    ids = tokenizer.encode(
        given_text(text),
        "all" if allow_special else (),
        add_special_tokens=add_special_tokens,
        dropout=dropout or 0.0,
        seed=seed or 0,
    )
    typer.echo(" ".join(map(str, ids)))


def decode(
    path: TokenizerPath,
    ids: Annotated[list[str], typer.Argument(metavar="IDS...|-", help="Ids; - reads them.")],
    skip_special: Annotated[
        bool, typer.Option("--skip-special", help="Leave special tokens out.")
    ] = False,
) -> None:
    """Print the text of ids; nothing is added to it."""
    import sys

    from mlxgpt.errors import TokenizerError
    from mlxgpt.text import Tokenizer

    tokenizer = Tokenizer.load(path)
    words = read_stdin().split() if ids == ["-"] else " ".join(ids).split()
    numbers = []
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise TokenizerError(f"ids are whole numbers with spaces between; got '{word}'")
        if len(word) > 18:
            raise TokenizerError(f"no id has {len(word)} digits: {word[:18]}...")
        numbers.append(int(word))
    typer.echo(tokenizer.decode(numbers, skip_special), nl=sys.stdout.isatty())
