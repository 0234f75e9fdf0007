"""tokenizer.json -> the libraries that encode with it, each by its fastest call for a document."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from benchmarks.tokenizer.race import Encode
from mlxgpt.text import Tokenizer

DROPOUT = 0.1


class Library(Protocol):
    """What may be installed or not."""

    @property
    def name(self) -> str: ...
    @property
    def package(self) -> str: ...


L = TypeVar("L", bound=Library)


@dataclass(frozen=True)
class Peer:
    """One way to encode with one library."""

    name: str
    package: str
    open: Callable[[Path], Encode]
    """Reads the tokenizer.json."""
    exact: bool = True
    """Whether all give the same ids; not so with dropout."""


def installed(libraries: Sequence[L]) -> tuple[list[L], list[str]]:
    """Return those of `libraries` that are installed, and the names of the others."""
    found = [library for library in libraries if find_spec(library.package)]
    return found, [library.name for library in libraries if library not in found]


def open_tokenizers(file: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda documents: [tokenizer.encode(d).ids for d in documents]


def open_tokenizers_fast(file: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda documents: [tokenizer.encode_batch_fast([d])[0].ids for d in documents]


def open_tokenizers_dropout(file: Path) -> Encode:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(file))
    tokenizer.model.dropout = DROPOUT
    return lambda documents: [tokenizer.encode(d).ids for d in documents]


def open_tiktoken(file: Path) -> Encode:
    from tiktoken import Encoding
    from tiktoken_ext.openai_public import r50k_pat_str

    tokenizer = Tokenizer.load(file)
    ranks = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    encoding = Encoding("bench", pat_str=r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    return lambda documents: [encoding.encode_to_numpy(d) for d in documents]


def open_gigatoken(file: Path) -> Encode:
    from gigatoken import Tokenizer

    tokenizer = Tokenizer(file)
    return lambda documents: [tokenizer.encode(d) for d in documents]


def open_fastokens(file: Path) -> Encode:
    from fastokens import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    return lambda documents: [
        np.frombuffer(tokenizer.encode_batch_flat([d])[0], dtype=np.uint32) for d in documents
    ]


PEERS = (
    Peer("tokenizers", "tokenizers", open_tokenizers),
    Peer("tokenizers, fast batch", "tokenizers", open_tokenizers_fast),
    Peer("tiktoken", "tiktoken", open_tiktoken),
    Peer("gigatoken", "gigatoken", open_gigatoken),
    Peer("fastokens", "fastokens", open_fastokens),
    Peer("tokenizers, dropout 0.1", "tokenizers", open_tokenizers_dropout, exact=False),
)
