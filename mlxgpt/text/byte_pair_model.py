"""Ordinary text -> ids by byte-level BPE; knows no added tokens and no files.

Text is cut into words, a word becomes its UTF-8 bytes, and the bytes are merged. Since all 256
bytes are tokens, every text has ids and every list of ids has bytes; there is no unknown token.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Literal, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.merging import MergeTable, merge_word, pair_key, pair_of
from mlxgpt.text.splitting import Splitter
from mlxgpt.text.word_cache import WordCache


@final
class BytePairModel:
    """Tokens, merges and split patterns. Immutable but for its cache of words."""

    kind: Literal["bpe"] = "bpe"

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        merges: "Sequence[Sequence[int]] | np.ndarray",
        patterns: Sequence[str],
        *,
        ignore_merges: bool = False,
    ) -> None:
        """Build the look-up tables.

        `tokens` holds the bytes of each id, or None where the id is no ordinary token. `merges`
        are pairs of ids, the first learned first. `patterns` cut text into words one after the
        other. With `ignore_merges` a word that is a token is not merged. Raises `TokenizerError`
        if a byte is missing, two ids have the same bytes, or a merge leads to no token.
        """
        self.tokens = tuple(tokens)
        self.patterns = tuple(patterns)
        self.ignore_merges = ignore_merges
        self._id_of = {token: i for i, token in enumerate(self.tokens) if token is not None}
        if len(self._id_of) != sum(token is not None for token in self.tokens):
            raise TokenizerError("two tokens of the vocabulary stand for the same bytes")
        missing = [byte for byte in range(256) if bytes([byte]) not in self._id_of]
        if missing:
            raise TokenizerError(
                f"the vocabulary lacks {len(missing)} of the 256 bytes, first 0x{missing[0]:02X}; "
                "text with them could not be encoded"
            )
        self._byte_ids = [self._id_of[bytes([byte])] for byte in range(256)]
        self._table = self._build_table(np.asarray(merges, dtype=np.int64).reshape(-1, 2).tolist())
        self._splitter = Splitter(self.patterns)
        self._words = WordCache(self._encode_word)

    def __reduce__(self) -> tuple[object, ...]:
        merges = np.array(self.merges, dtype=np.int32).reshape(-1, 2)
        return _rebuild, (self.tokens, merges, self.patterns, self.ignore_merges)

    @property
    def merges(self) -> list[tuple[int, int]]:
        """The merges as pairs of ids, the first learned first."""
        return [pair_of(key) for key in self._table.ranks]

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, which holds no lone surrogates."""
        return list(chain.from_iterable(map(self._words.__getitem__, self._splitter.split(text))))

    def _encode_word(self, word: str) -> list[int]:
        data = word.encode("utf-8")
        if self.ignore_merges and data in self._id_of:
            return [self._id_of[data]]
        return merge_word([self._byte_ids[byte] for byte in data], self._table)

    def _build_table(self, merges: list[list[int]]) -> MergeTable:
        ranks: dict[int, int] = {}
        products: list[int] = []
        for rank, (left, right) in enumerate(merges):
            first, second = self.tokens[left], self.tokens[right]
            product = None
            if first is not None and second is not None:
                product = self._id_of.get(first + second)
            if product is None:
                raise TokenizerError(f"merge {rank}: {first!r} + {second!r} is no token")
            if ranks.setdefault(pair_key(left, right), rank) != rank:
                raise TokenizerError(f"merge {rank} ({first!r} + {second!r}) stands twice")
            products.append(product)
        return MergeTable(ranks, products)


def _rebuild(
    tokens: tuple[bytes | None, ...],
    merges: np.ndarray,
    patterns: tuple[str, ...],
    ignore_merges: bool,
) -> BytePairModel:
    return BytePairModel(tokens, merges, patterns, ignore_merges=ignore_merges)
