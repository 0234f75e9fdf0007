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

    Raises `DataError` naming the document if the tokenizer refuses it or gives an id that is not in
    its vocabulary; any other error of the tokenizer becomes a `RuntimeError` naming the document.
    """
    dtype = token_dtype(tokenizer.vocab_size)
    end = [] if tokenizer.eot_id is None else [np.array([tokenizer.eot_id], dtype)]
    pieces: list[np.ndarray] = []
    num_bytes = 0
    for document in chunk.documents:
        try:
            ids = np.array(tokenizer.encode(document.text), dtype=np.int64)
        except MLXGPTError as e:
            raise DataError(f"{document.origin}: {e}") from e
        except Exception as e:
            raise RuntimeError(f"encoding {document.origin} failed: {type(e).__name__}: {e}") from e
        # The cast below would wrap: 70000 becomes 4464 in 16 bits, without a word.
        bad = ids[(ids < 0) | (ids >= tokenizer.vocab_size)]
        if len(bad):
            raise DataError(
                f"{document.origin}: the tokenizer gave the id {bad[0]}, but its vocabulary has "
                f"the ids 0 to {tokenizer.vocab_size - 1}"
            )
        if tokenizer.eot_id is not None and (ids == tokenizer.eot_id).any():
            raise DataError(
                f"{document.origin}: the tokenizer turned plain text into its end-of-text token"
            )
        pieces.append(ids.astype(dtype))
        pieces.extend(end)
        num_bytes += len(document.text.encode())
    return Encoded(chunk.side, np.concatenate(pieces), len(chunk.documents), num_bytes)
