"""`mlxgpt tokenizer show`: a text with the borders of its tokens, also under BPE-dropout."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from mlxgpt.cli.shell import given_text
from mlxgpt.cli.tokenizer.arguments import (
    AddSpecialTokens,
    AllowSpecial,
    DropoutRate,
    TextArgument,
    TokenizerPath,
    check_dropout,
)

if TYPE_CHECKING:
    from rich.console import Console

    from mlxgpt.cli.tokenizer.pieces import Ribbon
    from mlxgpt.text import Tokenizer

DEFAULT_SAMPLES = 5


def show(
    path: TokenizerPath,
    text: TextArgument = "-",
    dropout: DropoutRate = None,
    samples: Annotated[
        int | None,
        typer.Option(min=1, help=f"Encodings to draw with --dropout.  [{DEFAULT_SAMPLES}]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of the first of them; then +1 each.  [0]")
    ] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print the ids below the tokens.")] = False,
    no_colour: Annotated[
        bool, typer.Option("--no-colour", "--no-color", help="Part the tokens by lines instead.")
    ] = False,
    allow_special: AllowSpecial = False,
    add_special_tokens: AddSpecialTokens = False,
) -> None:
    """Print a text with the borders of its tokens; with --dropout, how they vary.

    What cannot be seen is spelled: \\n, \\t, \\xe6 (a byte that is no whole character), \\u0301.
    """
    from mlxgpt.cli.tokenizer.pieces import Ribbon
    from mlxgpt.errors import ConfigError
    from mlxgpt.text import Tokenizer

    for name, given in (("--samples", samples), ("--seed", seed)):
        if given is not None and dropout is None:
            raise ConfigError(f"{name} has no meaning without --dropout: there is one encoding")
    tokenizer = Tokenizer.load(path)
    if dropout is not None:
        check_dropout(tokenizer)
    content = given_text(text)
    console = _console()
    coloured = console.is_terminal and console.color_system is not None and not console.no_color
    ribbon = Ribbon(
        colour=coloured and not no_colour, width=console.width if console.is_terminal else None
    )
    encode = partial(
        tokenizer.encode,
        content,
        "all" if allow_special else (),
        add_special_tokens=add_special_tokens,
    )
    encodings = [("" if dropout is None else "p=0", encode())]
    if dropout is not None:
        first = seed or 0
        for number in range(first, first + (samples or DEFAULT_SAMPLES)):
            drawn = encode(dropout=dropout, seed=number)
            encodings.append((f"p={dropout:g} seed {number}", drawn))
    _print(console, ribbon, tokenizer, encodings, with_ids=ids)


def _print(
    console: "Console",
    ribbon: "Ribbon",
    tokenizer: "Tokenizer",
    encodings: list[tuple[str, list[int]]],
    *,
    with_ids: bool,
) -> None:
    from mlxgpt.cli.tokenizer.pieces import beside

    specials = set(tokenizer.special_tokens.values())
    names = max(len(name) for name, _ in encodings)
    digits = max(len(f"{len(ids):,}") for _, ids in encodings)
    for name, ids in encodings:
        count = f"{len(ids):>{digits},} {'token ' if len(ids) == 1 else 'tokens'}"
        labels = [f"{name:{names}}", count] if names else [count]
        indent = sum(len(label) + 2 for label in labels)
        tokens = [ribbon.token(tokenizer.token_bytes(i), i in specials) for i in ids]
        lines = beside(labels, ribbon.lines(tokens, indent))
        if with_ids:
            numbers = [ribbon.number(i, i in specials) for i in ids]
            below = ["", "ids".rjust(indent - 4)]
            lines += beside(below, ribbon.lines(numbers, indent))
        for line in lines:
            console.print(line, soft_wrap=True)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False)
