"""`mlxgpt tokenizer`: train one from a corpus, try it on a text, look into it."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mlxgpt.cli.shell import command, interruptible, read_stdin, table_console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from mlxgpt.data import Corpus
    from mlxgpt.text import Tokenizer

app = typer.Typer(
    help="Train a tokenizer, or see what one does.", no_args_is_help=True, rich_markup_mode=None
)

DEFAULT_VOCAB_SIZE = 4096

TokenizerPath = Annotated[
    Path, typer.Argument(metavar="DIR", help="Directory with a tokenizer.json, or that file.")
]


class Kind(StrEnum):
    """The kinds of tokenizer that can be trained."""

    bpe = "bpe"
    char = "char"


@app.command()
@interruptible
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
    special: Annotated[
        list[str] | None,
        typer.Option(help="A special token besides <|endoftext|>; may be given several times."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another tokenizer in the directory.")
    ] = False,
) -> None:
    """Learn a tokenizer from a corpus and write it as tokenizer.json."""
    from mlxgpt.data import open_corpus
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
    corpora = [open_corpus(spec) for spec in corpus]
    specials = [END_OF_TEXT, *(s for s in special or [] if s != END_OF_TEXT)]
    wanted = DEFAULT_VOCAB_SIZE if vocab_size is None else vocab_size
    with _progress_bar() as bar:
        reading = _Reading(corpora, bar)
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
            )
    if reading.num_bytes == 0:
        raise DataError(f"there is no text in {', '.join(corpus)}")
    if not force:
        _refuse_to_replace(out, tokenizer)
    tokenizer.save(out)
    measured = measure_compression(tokenizer, (d.text for c in corpora for d in c.documents()))
    if kind is Kind.bpe and tokenizer.vocab_size < wanted:
        typer.echo(
            f"note: the text holds no more to learn, so the vocabulary is smaller than {wanted:,}",
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


@app.command()
@interruptible
def encode(
    path: TokenizerPath,
    text: Annotated[str, typer.Argument(metavar="[TEXT|-]", help="Text; - reads it.")] = "-",
    allow_special: Annotated[
        bool,
        typer.Option("--allow-special", help="Literals of special tokens become their ids."),
    ] = False,
) -> None:
    """Print the ids of a text, or of standard input, on one line."""
    from mlxgpt.text import Tokenizer

    tokenizer = Tokenizer.load(path)
    content = read_stdin() if text == "-" else text
    ids = tokenizer.encode(content, allowed_special="all" if allow_special else ())
    typer.echo(" ".join(map(str, ids)))


@app.command()
@interruptible
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


@app.command()
@interruptible
def info(
    path: TokenizerPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what a tokenizer is: kind, size, special tokens, pattern, longest token, hash."""
    import json

    from mlxgpt.text import Tokenizer

    facts = _facts(Tokenizer.load(path))
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), Text(_in_words(value)))
    table_console().print(table)


def _facts(tokenizer: "Tokenizer") -> dict[str, object]:
    from mlxgpt.text import pattern_name

    longest = int(tokenizer.token_byte_lengths.argmax())
    patterns = [pattern_name(pattern) or pattern for pattern in tokenizer.patterns]
    return {
        "kind": tokenizer.kind,
        "vocab_size": tokenizer.vocab_size,
        "merges": tokenizer.num_merges,
        "special_tokens": tokenizer.special_tokens,
        "patterns": patterns,
        "longest_token": {"id": longest, "text": tokenizer.decode([longest])},
        "content_hash": tokenizer.content_hash,
    }


def _in_words(value: object) -> str:
    if isinstance(value, dict):
        shown = [f"{name} {part!r}" for name, part in list(value.items())[:8]]
        more = [f"and {len(value) - 8} more"] if len(value) > 8 else []
        return "\n".join([*shown, *more])
    if isinstance(value, list):
        return "\n".join(map(str, value)) or "none"
    return str(value)


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


def _progress_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:16}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Reading:
    """The texts of some corpora; counts their bytes and shows them as they go by."""

    def __init__(self, corpora: "list[Corpus]", bar: "Progress") -> None:
        self.num_bytes = 0
        self._corpora = corpora
        self._bar = bar
        self._task: TaskID = bar.add_task("reading bytes", total=None)

    def __iter__(self) -> Iterator[str]:
        for corpus in self._corpora:
            for document in corpus.documents():
                yield document.text
                self.num_bytes += len(document.text.encode("utf-8", "surrogatepass"))
                self._bar.update(self._task, completed=self.num_bytes)
        self._bar.update(self._task, total=self.num_bytes)
