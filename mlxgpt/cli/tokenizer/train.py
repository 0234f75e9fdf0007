"""`mlxgpt tokenizer train`: corpora -> a tokenizer.json."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxgpt.cli.shell import command
from mlxgpt.cli.tokenizer.reading import Reading, beginnings, progress_bar

if TYPE_CHECKING:
    from mlxgpt.text import Tokenizer

DEFAULT_VOCAB_SIZE = 4096

_MEASURED = 4_000_000
"""Characters of the corpus that bytes/token is measured on."""
_MOST_THREADS = 8
"""For counting; more would wait for the one that reads."""


class Kind(StrEnum):
    """The kinds of tokenizer that can be trained."""

    bpe = "bpe"
    char = "char"


def train(
    corpus: Annotated[
        list[str], typer.Argument(help="Files, folders, globs or names of built-in corpora.")
    ],
    out: Annotated[Path, typer.Option(help="Directory to write the tokenizer into.")],
    kind: Annotated[
        Kind, typer.Option("--type", help="bpe: byte-pair encoding; char: one id per character.")
    ] = Kind.bpe,
    vocab_size: Annotated[
        int | None,
        typer.Option(help=f"Number of ids, bytes and specials included.  [{DEFAULT_VOCAB_SIZE}]"),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(help="gpt2, llama3, qwen2 or a regex: what cuts text into words.  [gpt2]"),
    ] = None,
    min_frequency: Annotated[
        int | None, typer.Option(help="Least number of times that a merge must occur.  [1]")
    ] = None,
    max_token_length: Annotated[
        int | None, typer.Option(help="Most bytes of a token.  [no limit]")
    ] = None,
    text_field: Annotated[
        str, typer.Option(help="Field of .jsonl and .parquet files that holds the text.")
    ] = "text",
    special: Annotated[
        list[str] | None,
        typer.Option(help="A special token besides <|endoftext|>; may be given several times."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another tokenizer in the directory.")
    ] = False,
) -> None:
    """Learn a tokenizer from a corpus and write it as tokenizer.json."""
    from mlxgpt.data import open_corpora
    from mlxgpt.errors import DataError, TokenizerError
    from mlxgpt.text import END_OF_TEXT, measure_compression, train_bpe, train_char

    only_bpe = {
        "--vocab-size": vocab_size,
        "--pattern": pattern,
        "--min-frequency": min_frequency,
        "--max-token-length": max_token_length,
    }
    given = [name for name, value in only_bpe.items() if value is not None]
    if kind is Kind.char and given:
        raise TokenizerError(
            f"{given[0]} has no meaning for --type char: there is one id per character"
        )
    corpora = open_corpora(corpus, text_field=text_field)
    specials = [END_OF_TEXT, *(s for s in special or [] if s != END_OF_TEXT)]
    wanted = DEFAULT_VOCAB_SIZE if vocab_size is None else vocab_size
    with progress_bar() as bar:
        reading = Reading(corpora, bar)
        if kind is Kind.char:
            tokenizer = train_char(reading, special_tokens=specials)
        else:
            task = bar.add_task("learning merges", total=None, visible=False)
            tokenizer = train_bpe(
                reading,
                wanted,
                pattern=pattern or "gpt2",
                special_tokens=specials,
                min_frequency=1 if min_frequency is None else min_frequency,
                max_token_length=max_token_length,
                progress=lambda done, total: bar.update(
                    task, completed=done, total=total, visible=True
                ),
                threads=min(os.cpu_count() or 1, _MOST_THREADS),
                notice=lambda line: bar.console.print(line, markup=False, soft_wrap=True),
            )
    if reading.num_bytes == 0:
        raise DataError(f"there is no text in {', '.join(corpus)}")
    if not force:
        _refuse_to_replace(out, tokenizer)
    measured = measure_compression(tokenizer, beginnings(corpora, _MEASURED), _MEASURED)
    tokenizer.save(out)
    if kind is Kind.bpe and tokenizer.vocab_size < wanted:
        typer.echo(
            "note: with these settings the text holds no more to learn, so the vocabulary is "
            f"smaller than {wanted:,}: it has {tokenizer.vocab_size:,} ids",
            err=True,
        )
    typer.echo(
        f"vocabulary   {tokenizer.vocab_size:,} ids\n"
        f"merges       {tokenizer.num_merges:,}\n"
        f"bytes read   {reading.num_bytes:,}, all used\n"
        f"bytes/token  {measured.bytes_per_token:.2f}"
        f" (measured on {measured.num_bytes:,} bytes)\n"
        f"written to   {out}\n"
        f"next: {command('tokenizer', 'encode', out, 'Some text of yours')}"
    )


def _refuse_to_replace(out: Path, tokenizer: "Tokenizer") -> None:
    """Raise `TokenizerError` if `out` holds a tokenizer other than this one."""
    from mlxgpt.errors import TokenizerError
    from mlxgpt.text import Tokenizer

    if not (out / "tokenizer.json").exists():
        return
    try:
        same = Tokenizer.load(out) == tokenizer
    except TokenizerError:
        same = False
    if not same:
        raise TokenizerError(
            f"{out} already holds another tokenizer, and models trained with it would no longer "
            "fit; choose another --out, or give --force to replace it"
        )
