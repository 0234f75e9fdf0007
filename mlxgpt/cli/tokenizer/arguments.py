"""What several commands take: a tokenizer, a text, how to encode it; and what they ask of these."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mlxgpt.text import Tokenizer

TokenizerPath = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory with a tokenizer.json, or that file.")
]
TextArgument = Annotated[str, typer.Argument(metavar="[TEXT|-]", help="Text; - reads it.")]
AllowSpecial = Annotated[
    bool, typer.Option("--allow-special", help="Literals of special tokens become their ids.")
]
AddSpecialTokens = Annotated[
    bool,
    typer.Option(
        "--add-special-tokens", help="Put the special tokens around that the file asks for."
    ),
]
DropoutRate = Annotated[
    float | None,
    typer.Option("--dropout", metavar="P", help="BPE-dropout: drop a merge with this chance."),
]


def check_dropout(tokenizer: "Tokenizer") -> None:
    """Raise `TokenizerError` for a tokenizer with which `--dropout` would do nothing."""
    from mlxgpt.errors import TokenizerError

    if tokenizer.no_dropout_reason is not None:
        raise TokenizerError(
            f"--dropout is not possible with this tokenizer: {tokenizer.no_dropout_reason}"
        )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that tell them apart, or else the paths as they are."""
    for depth in (1, 2, 3):
        names = [os.sep.join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return list(map(str, paths))
