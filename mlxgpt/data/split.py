"""A corpus -> its training documents and its validation documents, always the same ones.

Both sides are streams: only the length of each document is held in memory, and, of documents that
are taken whole, one.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import chain, islice
from math import ceil
from typing import Literal

import numpy as np

from mlxgpt.data.config import DataConfig
from mlxgpt.data.corpus import Corpus
from mlxgpt.data.document import Document
from mlxgpt.errors import DataError
from mlxgpt.seeding import generator

# Below this many documents a draw of whole ones is too coarse, and `auto` cuts off the tail.
DOCUMENTS_FOR_DRAW = 20


class Split:
    """Two disjoint parts of a corpus that together are all of it.

    `document`: documents are drawn in a seeded order until they reach `val_fraction` of the bytes;
    at least one is on each side. One that would take validation beyond twice its share is passed
    over, so that a single huge document cannot swallow the training text.

    `tail`: the last `val_fraction` of the bytes, cut at the border of a character. A document that
    is cut is one document on either side.

    The result depends on the corpus, the settings and (for `document`) the seed alone.
    """

    def __init__(self, corpus: Corpus, config: DataConfig, seed: int) -> None:
        self.corpus = corpus
        self.config = config
        self.seed = seed

    @cached_property
    def kind(self) -> Literal["document", "tail"]:
        """How this corpus is split, with `auto` decided."""
        if self.config.split != "auto":
            return self.config.split
        first = islice(self._pieces(), DOCUMENTS_FOR_DRAW)
        enough = sum(1 for _ in first) == DOCUMENTS_FOR_DRAW
        return "document" if enough else "tail"

    @property
    def num_documents(self) -> int:
        """Documents of the whole corpus; one cut by `tail` counts once."""
        return len(self._lengths)

    @property
    def total_bytes(self) -> int:
        """UTF-8 bytes of both sides together."""
        return int(self._lengths.sum())

    @property
    def train_bytes(self) -> int:
        """UTF-8 bytes to train on; a cut by `tail` may leave up to three fewer."""
        if self.kind == "document":
            return int(self._lengths[~self._drawn].sum())
        return self.total_bytes - self._val_bytes

    def train_documents(self) -> Iterator[Document]:
        """Yield the documents to train on, tokenizers included."""
        return self._side("training")

    def train_pieces(self) -> Iterator[Iterator[str]]:
        """Yield the same documents, each as its pieces; take them before you ask for the next one.

        However large a text file is, little of it is held at once.
        """
        empty = True
        for pieces in filter(None, map(_filled, self._train_pieces())):
            empty = False
            yield pieces
        if empty:
            raise self._too_small("training")

    def val_documents(self) -> Iterator[Document]:
        """Yield the documents held back."""
        return self._side("validation")

    @cached_property
    def _lengths(self) -> np.ndarray:
        """UTF-8 bytes of each document, int64 (documents,)."""
        sizes = (sum(len(piece.encode()) for piece in pieces) for pieces in self._pieces())
        lengths = np.fromiter(sizes, np.int64)
        if len(lengths) == 0:
            raise DataError(f"{self.corpus.name} has no text: every document is empty")
        return lengths

    @property
    def _val_bytes(self) -> int:
        """How many bytes are to be held back: `tail` does so exactly."""
        # A fraction, because 1115394 * 0.1 and 1 - 0.1 are not what they seem in floats.
        return ceil(self.total_bytes * Fraction(str(self.config.val_fraction)))

    @cached_property
    def _drawn(self) -> np.ndarray:
        """Which documents `document` holds back, bool (documents,)."""
        count = self.num_documents
        if count < 2:
            raise DataError(
                f"{self.corpus.name} has a single document, which cannot be drawn from; "
                "set 'split' to tail"
            )
        target = self._val_bytes
        drawn = np.zeros(count, dtype=bool)
        reached = taken = 0
        order = generator(self.seed, "data-split").permutation(count)
        for index in order:
            if reached >= target or taken == count - 1:
                break
            if reached + self._lengths[index] <= 2 * target:
                drawn[index] = True
                reached += int(self._lengths[index])
                taken += 1
        if taken == 0:  # each is more than twice the share: the smallest does the least harm
            drawn[order[np.argmin(self._lengths[order])]] = True
        return drawn

    def _side(self, side: Literal["training", "validation"]) -> Iterator[Document]:
        documents = self._draw(side) if self.kind == "document" else self._cut(side)
        empty = True
        for document in documents:
            empty = False
            yield document
        if empty:
            raise self._too_small(side)

    def _too_small(self, side: str) -> DataError:
        return DataError(
            f"{self.corpus.name} ({self.total_bytes} bytes) is too small to be split: "
            f"nothing is left for {side}"
        )

    def _pieces(self) -> Iterator[Iterator[str]]:
        """Yield the pieces of each document that has text."""
        return filter(None, map(_filled, self.corpus.pieces()))

    def _train_pieces(self) -> Iterator[Iterator[str]]:
        documents = self._pieces()
        if self.kind == "document":
            for held_back, pieces in zip(self._drawn, documents, strict=True):
                if not held_back:
                    yield pieces
            return
        left = self.total_bytes - self._val_bytes
        for length, pieces in zip(self._lengths, documents, strict=True):
            yield pieces if left >= length else _head(pieces, left)
            left -= int(length)
            if left <= 0:
                return

    def _draw(self, side: str) -> Iterator[Document]:
        for held_back, document in zip(self._drawn, self.corpus.documents(), strict=True):
            if held_back == (side == "validation"):
                yield document

    def _cut(self, side: str) -> Iterator[Document]:
        left = self.total_bytes - self._val_bytes
        for length, document in zip(self._lengths, self.corpus.documents(), strict=True):
            if left >= length:
                left -= int(length)
                if side == "training":
                    yield document
                continue
            if left > 0:
                head, tail = _cut_text(document.text, left)
                left = 0
                document = Document(head if side == "training" else tail, document.origin)
                if document.text:
                    yield document
            elif side == "validation":
                yield document
            else:
                return


def _cut_text(text: str, at: int) -> tuple[str, str]:
    """Cut before byte `at`, or before the character that this byte belongs to."""
    raw = text.encode()
    while at > 0 and raw[at] & 0xC0 == 0x80:
        at -= 1
    return raw[:at].decode(), raw[at:].decode()


def _filled(pieces: Iterator[str]) -> Iterator[str] | None:
    """Return the pieces that have text in them, None if there is no such piece."""
    some = filter(None, pieces)
    first = next(some, None)
    return None if first is None else chain((first,), some)


def _head(pieces: Iterator[str], num_bytes: int) -> Iterator[str]:
    """Yield the pieces up to a byte, or to the start of the character that it belongs to."""
    for piece in pieces:
        size = len(piece.encode())
        if size > num_bytes:
            yield _cut_text(piece, num_bytes)[0]
            return
        yield piece
        num_bytes -= size
