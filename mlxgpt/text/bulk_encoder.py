"""Stretches of text -> their ids by the kernels: what `OwnEngine` uses for megabytes of text.

The twin of `PreTokenizer.split` and `BPEModel.encode_words` together, from any number of threads.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import final

import numpy as np

from mlxgpt.text.added_tokens import AddedToken
from mlxgpt.text.bpe.bpe_model import BPEModel
from mlxgpt.text.bpe.dropout import Dropout
from mlxgpt.text.compiled.encoder import CompiledEncoder
from mlxgpt.text.compiled.loads import pad
from mlxgpt.text.compiled.merge_tables import MOST_MERGES, MOST_NUMBERS
from mlxgpt.text.compiled.split_rules import rule_for
from mlxgpt.text.compiled.splitter import ends_in_stretches, ends_of_words
from mlxgpt.text.pipeline.pre_tokenizers import PreTokenizer, SpaceBorder

_GROUP = 1 << 15
"""Characters of short stretches that are encoded by one call."""


def fits(model: BPEModel) -> bool:
    """Return whether the kernels' tables have room for so many tokens and merges."""
    return len(model.tokens) <= MOST_NUMBERS and len(model.products) <= MOST_MERGES


@final
class BulkEncoder:
    """A BPE model and its way of cutting words, ready for the kernels. Imports numba."""

    def __init__(self, model: BPEModel, pre_tokenizer: PreTokenizer) -> None:
        """Build the tables, and see which way of finding the words is the quickest."""
        self._encoder = CompiledEncoder(
            model.byte_ids,
            model.pairs,
            model.products,
            char_ids=model.char_ids,
            whole_tokens=model.tokens if model.ignore_merges else None,
        )
        self._rule = rule_for(pre_tokenizer.expressions or ())
        self._border = None if pre_tokenizer.steps else pre_tokenizer.border
        self._lengths = np.array([len(token or b"") for token in model.tokens], np.int64)

    @property
    def joins(self) -> bool:
        """Whether `encode_pieces` is possible: the kernel finds the words by itself."""
        return self._rule is not None

    def encode(
        self, text: str, split: Callable[[], list[str]], dropout: Dropout | None, position: int
    ) -> tuple[np.ndarray, int]:
        """Return the ids of a stretch, int32 (n,), and the bytes of its words.

        `split` gives the words in the plain way, for where there is no quicker one.
        """
        if self._rule is not None:
            data, words = text.encode("utf-8"), self._rule
        elif self._border is not None:
            data = text.encode("utf-8")
            words = ends_at_border(data, self._border)
        else:
            pieces = split()
            data = "".join(pieces).encode("utf-8")
            words = ends_of_words(pieces, data)
        return self._encoder.encode(data, words, dropout, position), len(data)

    def encode_pieces(
        self, pieces: Iterable[str | AddedToken], dropout: Dropout | None
    ) -> Iterator[np.ndarray]:
        """Yield the ids of a text cut at its added tokens, int32, without a call for each stretch.

        Only where `joins`; the stretches are not empty.
        """
        assert self._rule is not None, "without a rule each stretch is split in its own way"
        position = 0
        for group in _grouped(pieces):
            encoded = [piece.encode("utf-8") for piece in group if isinstance(piece, str)]
            data = b"".join(encoded)
            ids = np.zeros(0, np.int32)
            if len(encoded) == 1:
                ids = self._encoder.encode(data, self._rule, dropout, position)
            elif encoded:
                stops = np.cumsum([len(stretch) for stretch in encoded]).tolist()
                ends = ends_in_stretches(pad(data), stops, self._rule)
                ids = self._encoder.encode(data, ends, dropout, position)
            position += len(data)
            yield self._with_added(ids, group, encoded)

    def _with_added(
        self, ids: np.ndarray, group: Sequence[str | AddedToken], encoded: Sequence[bytes]
    ) -> np.ndarray:
        """Put the ids of added tokens between those of the stretches, which end where ids end."""
        stretches = iter(encoded)
        added: list[int] = []
        places: list[int] = []  # bytes before each added token
        place = 0
        for piece in group:
            if isinstance(piece, str):
                place += len(next(stretches))
            else:
                added.append(piece.id)
                places.append(place)
        if not added:
            return ids
        before = np.searchsorted(np.cumsum(self._lengths[ids]), places, side="right")
        return np.insert(ids, before, added)


def _grouped(pieces: Iterable[str | AddedToken]) -> Iterator[list[str | AddedToken]]:
    """Yield all pieces in lists that hold little text, or one long stretch."""
    group: list[str | AddedToken] = []
    size = 0
    for piece in pieces:
        more = len(piece) if isinstance(piece, str) else 1
        if size + more > _GROUP and group:
            yield group
            group, size = [], 0
        group.append(piece)
        size += more
    if group:
        yield group


def ends_at_border(data: bytes, border: SpaceBorder) -> np.ndarray:
    """Return the ends in bytes, int64 (words,), of the words that `border` cuts from `data`."""
    content = np.frombuffer(data, np.uint8)
    begins = _places(content, border.marker.encode("utf-8"))
    for character in border.joined:
        joined = character.encode("utf-8")
        begins = np.setdiff1d(begins, _places(content, joined) + len(joined), assume_unique=True)
    return np.append(begins[begins > 0], len(data)) if data else begins


def _places(content: np.ndarray, wanted: bytes) -> np.ndarray:
    """Return where one character begins, int64: in UTF-8 its bytes are found nowhere else."""
    n = max(0, content.size - len(wanted) + 1)
    found = np.ones(n, np.bool_)
    for i, byte in enumerate(wanted):
        found &= content[i : i + n] == byte
    return np.flatnonzero(found)
