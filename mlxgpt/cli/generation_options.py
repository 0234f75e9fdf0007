"""What `generate` and `chat` both take: the model, how tokens are chosen, what speeds it up."""

from pathlib import Path
from typing import Annotated

import typer

from mlxgpt.cli.shell import given_text

ModelName = Annotated[
    str, typer.Argument(help="Run, model directory, .gguf file, or a model of the Hub.")
]
TemplateFile = Annotated[
    Path | None,
    typer.Option("--chat-template", metavar="FILE", help="Jinja, for chats.  [the model's own]"),
]
AdapterFolder = Annotated[
    str | None, typer.Option("--adapter", metavar="DIR", help="Adapter to put on the model.")
]
Temperature = Annotated[float, typer.Option("--temperature", help="0 always takes the likeliest.")]
TopK = Annotated[int | None, typer.Option("--top-k", help="Choose among the k likeliest. [off]")]
TopP = Annotated[float | None, typer.Option("--top-p", help="Choose among this much mass. [off]")]
MinP = Annotated[
    float | None,
    typer.Option("--min-p", help="Drop what is less likely than this share of the best. [off]"),
]
RepetitionPenalty = Annotated[
    float,
    typer.Option(
        "--repetition-penalty", help="Above 1: what was there already becomes less likely."
    ),
]
PresencePenalty = Annotated[
    float,
    typer.Option("--presence-penalty", help="Taken from the logit of what was written already."),
]
FrequencyPenalty = Annotated[
    float,
    typer.Option("--frequency-penalty", help="The same, times how often it was written."),
]
StopTexts = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text; may be given repeatedly."),
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL|ngram",
        help="Who guesses tokens ahead: a smaller model, or the text so far.  [nobody]",
    ),
]
NumDraftTokens = Annotated[
    int | None,
    typer.Option("--num-draft-tokens", min=1, help="Tokens to guess ahead at most.  [8]"),
]
KVMemory = Annotated[
    str | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        help="For keys and values at most, such as 2GB.  [half of what is free]",
    ),
]


def stop_texts(given: list[str] | None) -> tuple[str, ...]:
    """Return the texts of `--stop`. Raises `DataError` for one that is not UTF-8."""
    return tuple(text if text == "-" else given_text(text) for text in given or ())
