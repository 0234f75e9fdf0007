"""`mlxgpt tokenizer info`: what a tokenizer is, as a table or as JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxgpt.cli.shell import table_console
from mlxgpt.cli.tokenizer.arguments import TokenizerPath

if TYPE_CHECKING:
    from mlxgpt.text import Tokenizer

_SHOWN = 6
"""Special tokens and the like that the table names."""
_MODELS = {"bpe": "BPE", "wordpiece": "WordPiece", "unigram": "Unigram", "wordlevel": "WordLevel"}


def info(
    path: TokenizerPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Print what a tokenizer is: family, size, special tokens, steps, dropout, hash."""
    import json

    from mlxgpt.text import Tokenizer

    tokenizer = Tokenizer.load(path)
    facts = _facts(tokenizer)
    if as_json:
        typer.echo(json.dumps(facts, ensure_ascii=False))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in _in_words(tokenizer, facts):
        table.add_row(name, Text(words))
    table_console().print(table)


def _facts(tokenizer: "Tokenizer") -> dict[str, Any]:
    from mlxgpt.text import pattern_name

    longest = int(tokenizer.token_byte_lengths.argmax())
    eot = tokenizer.eot_id
    return {
        "kind": tokenizer.kind,
        "family": family_of(tokenizer),
        "engine": tokenizer.engine,
        "fallback_reason": tokenizer.fallback_reason,
        "vocab_size": tokenizer.vocab_size,
        "merges": tokenizer.num_merges,
        "special_tokens": tokenizer.special_tokens,
        "end_of_text": None if eot is None else {"id": eot, "text": _text(tokenizer, eot)},
        "patterns": [pattern_name(pattern) or pattern for pattern in tokenizer.patterns],
        **{part: list(steps) for part, steps in tokenizer.parts.items()},
        "byte_fallback": tokenizer.byte_fallback,
        "ignore_merges": tokenizer.ignore_merges,
        "missing_bytes": _missing_bytes(tokenizer),
        "dropout": tokenizer.supports_dropout,
        "longest_token": {"id": longest, "text": _text(tokenizer, longest)},
        "content_hash": tokenizer.content_hash,
    }


def _in_words(tokenizer: "Tokenizer", facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the table: (what, the fact in words)."""
    from mlxgpt.cli.tokenizer.pieces import between_borders

    specials = [f"{name} {i}" for name, i in facts["special_tokens"].items()]
    number = f"{len(specials):,}: " if len(specials) > _SHOWN else ""
    end, longest = facts["end_of_text"], facts["longest_token"]["id"]
    length = int(tokenizer.token_byte_lengths[longest])
    shown = f"{between_borders(tokenizer.token_bytes(longest))} {longest}"
    missing = [f"0x{byte:02X}" for byte in facts["missing_bytes"] or ()]
    reason = tokenizer.no_dropout_reason
    exact = "yes, exact (Provilkov et al. 2020, algorithm 1)"
    rows = [
        ("family", facts["family"]),
        ("vocabulary", f"{facts['vocab_size']:,} ids"),
        ("merges", f"{facts['merges']:,}"),
        ("special tokens", number + _few(specials)),
        ("end of text", f"{end['text']} {end['id']}" if end else "none"),
        ("normalizer", _few(facts["normalizer"])),
        ("pre-tokenizer", _few(facts["pre_tokenizer"])),
        ("pattern", "\n".join(facts["patterns"])),
        ("ignore merges", "a word that is a token is not merged" * facts["ignore_merges"]),
        ("added on demand", _around(tokenizer)),
        ("BPE-dropout", exact if reason is None else f"no: {reason}"),
        ("bytes without id", f"{_few(missing)}: left out of texts, with a note" if missing else ""),
        ("longest token", f"{shown}, {'1 byte' if length == 1 else f'{length} bytes'}"),
        ("content hash", facts["content_hash"]),
    ]
    return [(name, words) for name, words in rows if words]


def family_of(tokenizer: "Tokenizer") -> str:
    """Return in words how a tokenizer makes ids."""
    if tokenizer.engine == "tokenizers":
        model = _MODELS.get(tokenizer.kind, tokenizer.kind)
        return f"{model}, through the `tokenizers` library: {tokenizer.fallback_reason} is not ours"
    if tokenizer.kind == "char":
        return "characters, one id each; other characters as bytes"
    if tokenizer.byte_fallback:
        return "BPE over characters as in SentencePiece; other characters as bytes"
    return "byte-level BPE"


def _missing_bytes(tokenizer: "Tokenizer") -> list[int] | None:
    """Return the bytes that text can hold and that have no id; None if the library decides."""
    if tokenizer.engine != "mlxgpt":
        return None
    pieces = {tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # in UTF-8
    return [byte for byte in range(256) if bytes([byte]) not in pieces and byte not in never]


def _around(tokenizer: "Tokenizer") -> str:
    """Return what `--add-special-tokens` makes of a text, such as `<s> text`; empty for nothing."""
    plain, full = tokenizer.encode("a"), tokenizer.encode("a", add_special_tokens=True)
    start = next((k for k in range(len(full)) if full[k : k + len(plain)] == plain), None)
    if start is None or full == plain:
        return ""
    before = [_text(tokenizer, i) for i in full[:start]]
    after = [_text(tokenizer, i) for i in full[start + len(plain) :]]
    return " ".join([*before, "text", *after])


def _text(tokenizer: "Tokenizer", token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _few(names: Sequence[str]) -> str:
    more = [f"and {len(names) - _SHOWN:,} more"] if len(names) > _SHOWN else []
    return ", ".join([*names[:_SHOWN], *more]) or "none"
