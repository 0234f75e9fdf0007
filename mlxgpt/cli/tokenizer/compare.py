"""`mlxgpt tokenizer compare`: tokenizers side by side on the same text."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mlxgpt.cli.shell import table_console
from mlxgpt.cli.tokenizer.arguments import short_names
from mlxgpt.cli.tokenizer.reading import progress_bar

if TYPE_CHECKING:
    from collections import Counter

    from rich.text import Text

    from mlxgpt.cli.tokenizer.excerpt import Excerpt
    from mlxgpt.text import Tokenizer
    from mlxgpt.text.measurement import Measurement

DEFAULT_MAX_BYTES = 4_000_000
EXAMPLES = 5
"""Tokens that are named as the longest and as the most frequent."""

Best = Literal["high", "low"]


@dataclass(frozen=True)
class Compared:
    """One tokenizer, the name of its column, and what was measured."""

    name: str
    path: str
    tokenizer: "Tokenizer"
    measured: "Measurement"


def compare(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Tokenizers: folders or .json files.")
    ],
    corpus: Annotated[
        list[str],
        typer.Option(help="File, folder, glob or built-in corpus; may be given several times."),
    ],
    text_field: Annotated[str, typer.Option(help="Field of .jsonl and .parquet files.")] = "text",
    max_bytes: Annotated[
        int, typer.Option(min=1, help="Bytes of text to measure, from the beginning.")
    ] = DEFAULT_MAX_BYTES,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw the comparison into this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Compare tokenizers on a text: tokens, vocabulary in use, words cut; * is the best."""
    from mlxgpt.cli.tokenizer.excerpt import take_excerpt
    from mlxgpt.data import open_corpora
    from mlxgpt.errors import ConfigError, DataError
    from mlxgpt.text import Tokenizer
    from mlxgpt.text.measurement import find_words

    if plot is not None and plot.suffix.lower() != ".png":
        raise ConfigError(f"--plot writes a PNG, so the name must end in .png; got {plot}")
    if plot is not None and not plot.absolute().parent.is_dir():
        raise ConfigError(f"--plot: there is no folder {plot.parent}")
    tokenizers = [Tokenizer.load(path) for path in paths]
    excerpt = take_excerpt(open_corpora(corpus, text_field=text_field), max_bytes)
    if not excerpt.texts:
        raise DataError(f"there is no text in {', '.join(corpus)}")
    words = find_words(text for _, text in excerpt.texts)
    places = [path.parent if path.name == "tokenizer.json" else path for path in paths]
    names = short_names([place.absolute() for place in places])
    compared = [
        Compared(name, str(path), tokenizer, _measure(name, tokenizer, excerpt, words))
        for name, path, tokenizer in zip(names, paths, tokenizers, strict=True)
    ]
    if plot is not None:
        from mlxgpt.cli.tokenizer.plot import plot_comparison

        plot_comparison([(c.name, c.measured) for c in compared], excerpt.grouped_by, plot)
    if as_json:
        typer.echo(json.dumps(_report(compared, excerpt, corpus), ensure_ascii=False))
        return
    _print_table(compared)
    typer.echo("\n" + _conditions(excerpt, corpus, max_bytes))
    if plot is not None:
        typer.echo(f"plot: {plot}")


def _measure(
    name: str, tokenizer: "Tokenizer", excerpt: "Excerpt", words: "Counter[str]"
) -> "Measurement":
    from mlxgpt.text.measurement import measure

    with progress_bar() as bar:
        task = bar.add_task(name, total=excerpt.num_bytes)
        return measure(
            tokenizer, excerpt.texts, words, lambda done: bar.update(task, completed=done)
        )


def _print_table(compared: list[Compared]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(style="bold", no_wrap=True)
    for c in compared:
        table.add_column(Text(c.name), overflow="fold")
    measured = [c.measured for c in compared]
    table.add_row("kind", *[c.tokenizer.kind for c in compared])
    table.add_row("vocabulary", *[f"{c.tokenizer.vocab_size:,}" for c in compared])
    rows: list[tuple[str, list[float], str, Best]] = [
        ("bytes/token", [m.whole.bytes_per_token for m in measured], ".3f", "high"),
        ("tokens", [m.whole.num_tokens for m in measured], ",", "low"),
        ("vocabulary used", [m.vocab_use for m in measured], ".1%", "high"),
        ("words split", [m.words.split_share for m in measured], ".1%", "low"),
        ("tokens/word", [m.words.tokens_per_word for m in measured], ".3f", "low"),
        ("texts kept exactly", [m.kept_share for m in measured], ".1%", "high"),
    ]
    for title, values, form, best in rows:
        table.add_row(title, *[Text(*shown) for shown in _marked(values, form, best)])
    table.add_row("most frequent", *[_frequent(c) for c in compared])
    table.add_row("longest", *[_longest(c) for c in compared])
    table_console().print(table)


def _marked(values: list[float], form: str, best: Best) -> list[tuple[str, str]]:
    """Return (text, style) of each value; those that show the best one get a star."""
    shown = [format(value, form) for value in values]
    top = shown[values.index(max(values) if best == "high" else min(values))]
    if len(set(shown)) == 1:
        return [(text, "") for text in shown]
    return [(f"{text} *", "bold green") if text == top else (text, "") for text in shown]


def _frequent(c: Compared) -> "Text":
    total = max(1, c.measured.whole.num_tokens)
    shares = {i: c.measured.counts[i] / total for i in c.measured.most_frequent(EXAMPLES)}
    return _listed(c.tokenizer, {i: f"{share:.1%}" for i, share in shares.items()})


def _longest(c: Compared) -> "Text":
    lengths = {i: c.measured.byte_lengths[i] for i in c.measured.longest(EXAMPLES)}
    return _listed(
        c.tokenizer, {i: "1 byte" if n == 1 else f"{n} bytes" for i, n in lengths.items()}
    )


def _listed(tokenizer: "Tokenizer", remarks: dict[int, str]) -> "Text":
    """Return one line for each id: its token and a remark."""
    from rich.text import Text

    from mlxgpt.cli.tokenizer.pieces import between_borders

    tokens = {i: between_borders(tokenizer.token_bytes(i)) for i in remarks}
    lines = [Text.assemble(tokens[i], (f" {remark}", "dim")) for i, remark in remarks.items()]
    return Text("\n").join(lines)


def _conditions(excerpt: "Excerpt", corpus: list[str], max_bytes: int) -> str:
    texts = "1 text" if len(excerpt.texts) == 1 else f"{len(excerpt.texts):,} texts"
    part = f"at most {max_bytes:,} (--max-bytes)" if excerpt.is_cut else "all of it"
    return f"measured on {', '.join(corpus)}: {excerpt.num_bytes:,} bytes in {texts}, {part}"


def _report(compared: list[Compared], excerpt: "Excerpt", corpus: list[str]) -> dict[str, Any]:
    return {
        "corpus": corpus,
        "num_bytes": excerpt.num_bytes,
        "num_texts": len(excerpt.texts),
        "is_cut": excerpt.is_cut,
        "grouped_by": excerpt.grouped_by,
        "tokenizers": [_facts(c) for c in compared],
    }


def _facts(c: Compared) -> dict[str, Any]:
    m = c.measured
    return {
        "path": c.path,
        "kind": c.tokenizer.kind,
        "content_hash": c.tokenizer.content_hash,
        "vocab_size": c.tokenizer.vocab_size,
        "num_tokens": m.whole.num_tokens,
        "bytes_per_token": m.whole.bytes_per_token,
        "vocab_use": m.vocab_use,
        "num_words": m.words.num_words,
        "words_split": m.words.split_share,
        "tokens_per_word": m.words.tokens_per_word,
        "texts_kept": m.kept_share,
        "groups": {name: g.bytes_per_token for name, g in m.groups.items() if name},
        "most_frequent": [_token(c, i) for i in m.most_frequent(EXAMPLES)],
        "longest": [_token(c, i) for i in m.longest(EXAMPLES)],
    }


def _token(c: Compared, i: int) -> dict[str, Any]:
    text = c.tokenizer.token_bytes(i).decode("utf-8", "replace")
    return {"id": i, "text": text, "count": int(c.measured.counts[i])}
