"""Documents -> chunks -> arrays of ids. Which process does it is not known here.

A document is never cut: where a tokenizer cannot merge across is not known here. A chunk is only
what travels to a process at once, and no id depends on which documents share one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from mlxgpt.data.document import Document
from mlxgpt.data.token_file import token_dtype
from mlxgpt.errors import DataError, MLXGPTError
from mlxgpt.text import Tokenizer

CHUNK_BYTES = 1 << 19

Side = Literal["train", "val"]


@dataclass(frozen=True)
class Chunk:
    """Documents of one side that are encoded in one go."""

    side: Side
    documents: list[Document]


@dataclass(frozen=True)
class Encoded:
    """What became of a chunk."""

    side: Side
    ids: np.ndarray
    """(n,) of `token_dtype(vocab_size)`: each document's ids, then the end-of-text, if any."""
    num_documents: int
    num_bytes: int


def chunked(side: Side, documents: Iterable[Document], size: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """Group documents until a group has `size` characters."""
    group: list[Document] = []
    length = 0
    for document in documents:
        group.append(document)
        length += len(document.text)
        if length >= size:
            yield Chunk(side, group)
            group, length = [], 0
    if group:
        yield Chunk(side, group)


def encode_chunk(chunk: Chunk, tokenizer: Tokenizer) -> Encoded:
    """Encode each document by itself.

    Raises `DataError` naming the document for what `encode_text` refuses; any other error of the
    tokenizer becomes a `RuntimeError` naming the document.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    end = [] if tokenizer.eot_id is None else [np.array([tokenizer.eot_id], dtype)]
    pieces: list[np.ndarray] = []
    num_bytes = 0
    for document in chunk.documents:
        try:
            ids = encode_text(document.text, tokenizer)
        except MLXGPTError as e:
            raise DataError(f"{document.origin}: {e}") from e
        except Exception as e:
            raise RuntimeError(f"encoding {document.origin} failed: {type(e).__name__}: {e}") from e
        pieces.append(ids.astype(dtype))
        pieces.extend(end)
        num_bytes += len(document.text.encode())
    return Encoded(chunk.side, np.concatenate(pieces), len(chunk.documents), num_bytes)


def encode_text(
    text: str, tokenizer: Tokenizer, *, dropout: float = 0.0, seed: int = 0
) -> np.ndarray:
    """Return the ids of a text, int32 (n,), checked.

    Raises `DataError` for an id that is not in the vocabulary, and if ordinary text became the
    end-of-text token; what the tokenizer raises passes through.
    """
    ids = tokenizer.encode_array(text, dropout=dropout, seed=seed)
    # A cast to 16 bits would wrap: 70000 becomes 4464, without a word. MLX does not check either.
    if len(ids) and (ids.min() < 0 or ids.max() >= tokenizer.vocab_size):
        bad = ids[(ids < 0) | (ids >= tokenizer.vocab_size)]
        raise DataError(
            f"the tokenizer gave the id {bad[0]}, but its vocabulary has the ids 0 to "
            f"{tokenizer.vocab_size - 1}"
        )
    if tokenizer.eot_id is not None and (ids == tokenizer.eot_id).any():
        raise DataError("the tokenizer turned plain text into its end-of-text token")
    return ids
