"""What the commands that look at rows take: the rows, the base, how rows become ids."""

from typing import Annotated

import typer

RowFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A .jsonl or .json file, or a folder with train.jsonl")
]
BaseName = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="BASE",
        help="Model to fine-tune: a run, a directory, a GGUF file or a name on the Hub.",
    ),
]
TemplateName = Annotated[
    str | None,
    typer.Option(
        "--template",
        help="Chat template: auto, plain, chatml, llama3, gemma, mistral, zephyr, alpaca, or a "
        "file. [auto: the base's own]",
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option("--max-length", help="Tokens of a row at most. [what the base sees, up to 2048]"),
]
Overflow = Annotated[
    str | None,
    typer.Option("--overflow", help="truncate-right, truncate-left or drop. [truncate-right]"),
]
MaskPrompt = Annotated[
    bool | None,
    typer.Option(
        "--mask-prompt/--no-mask-prompt", help="Learn answers only, or all. [answers only]"
    ),
]
Turns = Annotated[
    str | None,
    typer.Option("--turns", help="Learn all turns of the assistant, or the last. [all]"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
