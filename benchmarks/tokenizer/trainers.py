"""Documents -> merges, by each library that trains byte-level BPE with the GPT-2 split.

What they learned is compared as the bytes of the new tokens, in order.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.tokenizer.vocabulary import train_hugging_face
from mlxgpt.text import PATTERNS, train_bpe
from mlxgpt.text.bpe.byte_alphabet import from_characters


@dataclass(frozen=True)
class Task:
    """What all trainers are given."""

    documents: Sequence[str]
    vocab_size: int
    """256 bytes and the merges; no special tokens."""
    file: Path
    """The documents, one after the other, for a library that reads files."""
    alphabet: int
    """How many different bytes there are in the documents."""


@dataclass(frozen=True)
class Trainer:
    """One library."""

    name: str
    package: str
    train: Callable[[Task], Any]
    learned: Callable[[Any], list[bytes]]
    """Its result -> the bytes of the new tokens."""


def learned_by_hugging_face(tokenizer: Any) -> list[bytes]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [_joined(merge) for merge in merges]


def train_rustbpe(task: Task) -> Any:
    import rustbpe

    tokenizer: Any = rustbpe.Tokenizer()
    pattern = PATTERNS["gpt2"]
    tokenizer.train_from_iterator(iter(task.documents), task.vocab_size, pattern=pattern)
    return tokenizer


def train_gigabpe(task: Task) -> Any:
    """It gives no ids to bytes that the text lacks, so it is asked for so many fewer."""
    import gigabpe

    size = task.vocab_size - 256 + task.alphabet
    return gigabpe.train_bpe([str(task.file)], size, pretokenizer="bytelevel", threads=1)


TRAINERS = (
    Trainer(
        "mlxgpt",
        "mlxgpt",
        lambda task: train_bpe(task.documents, task.vocab_size, special_tokens=()),
        lambda tokenizer: [tokenizer.token_bytes(i) for i in range(256, tokenizer.vocab_size)],
    ),
    Trainer(
        "tokenizers",
        "tokenizers",
        lambda task: train_hugging_face(task.documents, task.vocab_size),
        learned_by_hugging_face,
    ),
    Trainer(
        "rustbpe",
        "rustbpe",
        train_rustbpe,
        lambda tokenizer: [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()[256:]],
    ),
    Trainer(
        "gigabpe",
        "gigabpe",
        train_gigabpe,
        lambda result: [_joined(merge) for merge in result[1]],
    ),
)


def agreement(learned: Sequence[bytes], reference: Sequence[bytes]) -> str:
    """Say how far `learned` is what the reference learned, in the same order and in any."""
    if list(learned) == list(reference):
        return f"all {len(reference):,}"
    pairs = zip(learned, reference, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(learned), len(reference)))
    common = len(set(learned) & set(reference))
    return f"first {first:,}, {common:,} in any order"


def _joined(merge: str | Sequence[str]) -> bytes:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    token = from_characters(left + right)
    assert token is not None
    return token
