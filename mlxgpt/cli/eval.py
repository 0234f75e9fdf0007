"""`mlxgpt eval`: a model and a text -> perplexity and bits per byte, as a table or as JSON."""

import codecs
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

import typer

from mlxgpt.cli.shell import import_heavy, table_console
from mlxgpt.errors import CheckpointError, DataError, MLXGPTWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlxgpt.infer import Score
    from mlxgpt.text import Tokenizer


class Encoded(NamedTuple):
    """The ids of a text, and how many bytes of it those that are scored spell."""

    ids: list[int]
    scored_bytes: int
    begins_with: str | None
    """The literal that the tokenizer put before the text, if it did."""


def evaluate(
    model: Annotated[
        str, typer.Argument(help="Run, model directory, .gguf file, or a model of the Hub.")
    ],
    text: Annotated[str, typer.Option(metavar="FILE", help="UTF-8 text; - reads it.")],
    adapter: Annotated[
        str | None, typer.Option(metavar="DIR", help="Adapter to put on the model.")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option(help="Tokens of a window.  [the model's context, at most 1024]"),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(help="Tokens from one window to the next.  [half a window]")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Windows at once.  [as many as have 4096 tokens]")
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(min=1, help="Bytes of text to measure, from the beginning.  [all]"),
    ] = None,
    allow_special: Annotated[
        bool, typer.Option("--allow-special", help="Literals of special tokens become their ids.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Measure how well a model predicts a text."""
    import_heavy("mlxgpt.checkpoint", "mlxgpt.infer")
    import json
    import math
    import time

    from mlxgpt.checkpoint import attach, load_model, load_tokenizer, open_checkpoint, read_adapter
    from mlxgpt.checkpoint.foreign import ForeignArchitecture
    from mlxgpt.infer import score, window_sizes

    name = "standard input" if text == "-" else text
    content = _read(text, max_bytes)
    checkpoint = open_checkpoint(model)
    with suppress(ForeignArchitecture):  # what such a model can use is known once it is loaded
        window_sizes(checkpoint.config.context, context, stride)
    encoded = encode(load_tokenizer(checkpoint), content, allow_special)
    if not content:
        raise DataError(f"{name} is empty; there is nothing to score")
    if len(encoded.ids) < 2 or encoded.scored_bytes < 1:
        raise DataError(
            f"{name} has no token of {model} that follows another; there is nothing to score"
        )
    change = None if adapter is None else read_adapter(adapter)
    network = load_model(checkpoint)
    if change is not None:
        attach(network, change)
    with _bar(len(encoded.ids) - 1) as progress:
        began = time.perf_counter()
        result = score(
            network,
            encoded.ids,
            context=context,
            stride=stride,
            batch_size=batch,
            progress=progress,
        )
        seconds = time.perf_counter() - began
    if not math.isfinite(result.nll):
        raise CheckpointError(f"{model} gives probabilities of this text that are not numbers")
    facts = {"model": model, "adapter": adapter, "text": name, **_facts(result, encoded, seconds)}
    if as_json:
        finite = {k: None if v == math.inf else v for k, v in facts.items()}  # JSON has no infinity
        typer.echo(json.dumps(finite, ensure_ascii=False))
    else:
        _print_table(facts, result)


def encode(tokenizer: "Tokenizer", text: str, allow_special: bool) -> Encoded:
    """Encode `text` with the special tokens around it that the tokenizer's file asks for.

    That is what other tools do, so the figures are the same. What they also do is to read the
    literal of a special token as that token; here this needs `allow_special`, and without it
    there is a note.
    """
    import warnings

    specials = tokenizer.special_tokens
    if not allow_special and (found := [name for name in specials if name in text]):
        warnings.warn(
            f"the text holds {found[0]!r}, which is read as plain text; other tools take it for "
            "the special token, as --allow-special does",
            MLXGPTWarning,
            stacklevel=2,
        )
    ids = tokenizer.encode(text, "all" if allow_special else (), add_special_tokens=True)
    around = tokenizer.encode("", add_special_tokens=True)
    if ids and ids[:1] == around[:1]:
        literal = next((name for name, i in specials.items() if i == ids[0]), None)
        return Encoded(ids, len(text.encode()), literal or str(ids[0]))
    return Encoded(ids, len(text.encode()) - len(tokenizer.decode_bytes(ids[:1])), None)


def _read(name: str, max_bytes: int | None) -> str:
    """Return a text without its mark (U+FEFF), or its first `max_bytes` less a part of a character.

    Raises `DataError` naming the place if it is not UTF-8.
    """
    if name != "-":
        with Path(name).expanduser().open("rb") as file:
            return _decoded(file, max_bytes, name)
    if sys.stdin is None:
        raise DataError("standard input is closed; give a file to --text")
    return _decoded(sys.stdin.buffer, max_bytes, "standard input")


def _decoded(file: BinaryIO, max_bytes: int | None, name: str) -> str:
    raw = file.read() if max_bytes is None else file.read(max_bytes + 1)
    cut = max_bytes is not None and len(raw) > max_bytes
    try:
        decoder = codecs.getincrementaldecoder("utf-8")()
        return decoder.decode(raw[:max_bytes], final=not cut).removeprefix("\ufeff")
    except UnicodeDecodeError as e:
        raise DataError(
            f"{name}: not UTF-8 at byte {e.start} (0x{raw[e.start]:02x}); --text takes plain text"
        ) from e


@contextmanager
def _bar(tokens: int) -> "Iterator[Callable[[int], None]]":
    """Show on stderr how many of `tokens` are done, and leave nothing behind; yields a function
    that takes the number. Without a terminal nothing is shown."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    columns = ("tokens", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), "left")
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("", total=tokens)
        yield lambda done: bar.update(task, completed=done)


def _facts(result: "Score", encoded: Encoded, seconds: float) -> dict[str, Any]:
    return {
        "tokens": result.num_tokens,
        "bytes": encoded.scored_bytes,
        "begins_with": encoded.begins_with,
        "nll": result.nll,
        "perplexity": result.perplexity,
        "nats_per_token": result.mean_nll,
        "bits_per_byte": result.bits_per_byte(encoded.scored_bytes),
        "context": result.context,
        "stride": result.stride,
        "seconds": seconds,
        "tok_per_sec": result.num_tokens / seconds,
    }


def _print_table(facts: dict[str, Any], result: "Score") -> None:
    from rich.table import Table
    from rich.text import Text

    begin = facts["begins_with"]
    first = f"the first after {begin}" if begin else "not the first, which follows nothing"
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for title, value, remark in (
        ("tokens", f"{facts['tokens']:,}", f"scored of {facts['text']}; {first}"),
        ("bytes", f"{facts['bytes']:,}", "that these tokens spell"),
        ("perplexity", f"{facts['perplexity']:,.4f}", ""),
        ("nats/token", f"{facts['nats_per_token']:.4f}", ""),
        ("bits/byte", f"{facts['bits_per_byte']:.4f}", ""),
        ("context", f"{result.context:,}", "tokens of a window (--context)"),
        ("stride", f"{result.stride:,}", _seen(result)),
        ("tok/s", f"{facts['tok_per_sec']:,.0f}", f"scored, {facts['seconds']:,.1f} s in all"),
    ):
        table.add_row(title, value, Text(remark))
    table_console().print(table)


def _seen(result: "Score") -> str:
    least = result.context - result.stride
    return f"from one window to the next (--stride); a token sees {least:,} before it, or all"
