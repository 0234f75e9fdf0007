"""Words -> ids by byte-pair encoding, with dropout if wanted; knows no patterns and no files.

A word becomes its first symbols, and these are merged. Without byte fallback the symbols are the
bytes of UTF-8, all 256 of which are tokens. With it they are characters, as in SentencePiece, and
a character that is no token becomes its bytes, which are tokens of their own. Either way every word
has ids and every list of ids has bytes; there is no unknown token.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Literal, final

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.dropout import LONGEST_GAP, Dropout
from mlxgpt.text.bpe.dropping import drop_and_merge, drops, keeps_all
from mlxgpt.text.bpe.merging import merge_table, merge_word
from mlxgpt.text.bpe.word_cache import LONGEST_CACHED, WordCache

_MANY = (1 << 32) - 1


@final
class BPEModel:
    """Tokens and merges. Immutable but for its cache of words; pickles without that."""

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        merges: "Sequence[Sequence[int]] | np.ndarray",
        *,
        byte_ids: Sequence[int] | None = None,
        byte_fallback: bool = False,
        ignore_merges: bool = False,
    ) -> None:
        """Build the look-up tables.

        `tokens` holds the bytes of each id, or None where the id is no ordinary token. `merges`
        are pairs of ids, the first learned first, shape (M, 2). `byte_ids` are the ids of the
        bytes 0..255 when there is `byte_fallback`, and None otherwise, where they are found in
        `tokens`. With `ignore_merges` a word that is a token is not merged. Raises
        `TokenizerError` if a byte is missing, two ids have the same bytes, or a merge leads to no
        token.
        """
        self.tokens = tuple(tokens)
        self.byte_fallback = byte_fallback
        self.ignore_merges = ignore_merges
        apart = _checked_byte_ids(self.tokens, byte_ids) if byte_fallback else ()
        self._id_of = _find_ids(self.tokens, frozenset(apart))
        self.byte_ids = apart or _find_bytes(self._id_of)
        """The ids of the bytes 0..255."""
        self.char_ids = _find_characters(self._id_of) if byte_fallback else None
        """With byte fallback: character -> its id."""
        self.pairs = np.array(merges, dtype=np.int32).reshape(-1, 2)
        """(M, 2) int32: the ids that each merge joins, the first learned first."""
        self.products = self._find_products(frozenset(apart))
        """(M,) int32: the id that each merge makes."""
        self._table = merge_table(len(self.tokens), self.pairs.tolist(), self.products.tolist())
        self._words = WordCache(self._encode_word)
        self._sizes = WordCache(self._sizes_of)
        self._characters = WordCache(self._spell)

    def __reduce__(self) -> tuple[object, ...]:
        rebuild = partial(
            BPEModel,
            byte_ids=self.byte_ids if self.byte_fallback else None,
            byte_fallback=self.byte_fallback,
            ignore_merges=self.ignore_merges,
        )
        return rebuild, (self.tokens, self.pairs)

    @property
    def kind(self) -> Literal["bpe", "char"]:
        """`"char"` if each character has one id and nothing is merged, else `"bpe"`."""
        return "char" if self.byte_fallback and not self.products.size else "bpe"

    @property
    def merges(self) -> list[tuple[int, int]]:
        """The merges as pairs of ids, the first learned first."""
        return [(left, right) for left, right in self.pairs.tolist()]

    def encode_words(
        self, words: Sequence[str], dropout: Dropout | None = None, position: int = 0
    ) -> list[int]:
        """Return the ids of all `words`, which hold no lone surrogates.

        With `dropout` merges are left out at random (`dropout.py`). The words count as following
        one another without a gap, the first of them beginning at byte `position` of the text.
        """
        if not self.products.size and not self.ignore_merges:
            ids = map(self._symbols, words)
            return next(ids) if len(words) == 1 else list(chain.from_iterable(ids))
        if dropout is None or dropout.p == 0:
            return list(chain.from_iterable(map(self._words.__getitem__, words)))
        return list(chain.from_iterable(self._drop(words, dropout, position)))

    def _drop(self, words: Sequence[str], dropout: Dropout, position: int) -> list[Sequence[int]]:
        """Return the ids of each word: the plain ones, unless the first draw says otherwise."""
        sizes = np.fromiter(map(self._sizes.__getitem__, words), np.int64, len(words))
        n_bytes, n_merges = sizes >> 32, sizes & _MANY
        positions = position + np.cumsum(n_bytes) - n_bytes
        enough = np.array(dropout.thresholds, np.uint64)[np.minimum(n_merges, LONGEST_GAP)]
        unclear = (dropout.first_draws(positions) >= enough) | (n_merges > LONGEST_GAP)
        ids: list[Sequence[int]] = list(map(self._words.__getitem__, words))
        for i in np.flatnonzero(unclear).tolist():
            ids[i] = self._drop_in_word(words[i], ids[i], dropout, int(positions[i]))
        return ids

    def _drop_in_word(
        self, word: str, plain: Sequence[int], dropout: Dropout, position: int
    ) -> Sequence[int]:
        symbols = self._symbols(word)
        if len(symbols) > LONGEST_GAP:  # then the first draw may not have told all
            merged = merge_word(symbols, self._table) if self.ignore_merges else plain
            if keeps_all(dropout, position, len(symbols) - len(merged)):
                return plain
        return drop_and_merge(symbols, self._table, drops(dropout, position))

    def _sizes_of(self, word: str) -> int:
        """Return (UTF-8 bytes << 32) + how many merges there are without dropout."""
        n_bytes = len(word.encode("utf-8"))
        if len(word) > LONGEST_CACHED:
            return n_bytes << 32 | _MANY  # it is not remembered; count where its ids are at hand
        merged = self._words[word]
        if self.ignore_merges:
            merged = merge_word(self._symbols(word), self._table)
        n_symbols = n_bytes if self.char_ids is None else len(self._symbols(word))
        return n_bytes << 32 | n_symbols - len(merged)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        if self.ignore_merges:
            known = self._id_of.get(word.encode("utf-8"))
            if known is not None:
                return (known,)
        return tuple(merge_word(self._symbols(word), self._table))

    def _symbols(self, word: str) -> list[int]:
        """Return the ids that a word consists of before anything is merged."""
        if self.char_ids is None:
            return list(map(self.byte_ids.__getitem__, word.encode("utf-8")))
        try:
            return list(map(self.char_ids.__getitem__, word))
        except KeyError:
            return list(chain.from_iterable(map(self._characters.__getitem__, word)))

    def _spell(self, character: str) -> tuple[int, ...]:
        known = None if self.char_ids is None else self.char_ids.get(character)
        if known is not None:
            return (known,)
        return tuple(map(self.byte_ids.__getitem__, character.encode("utf-8")))

    def _find_products(self, apart: frozenset[int]) -> np.ndarray:
        products = np.empty(len(self.pairs), np.int32)
        for rank, (left, right) in enumerate(self.pairs.tolist()):
            first, second = self.tokens[left], self.tokens[right]
            product = None
            if first is not None and second is not None and apart.isdisjoint((left, right)):
                product = self._id_of.get(first + second)
            if product is None:
                raise TokenizerError(f"merge {rank}: {first!r} + {second!r} is no token")
            products[rank] = product
        return products


def _checked_byte_ids(
    tokens: tuple[bytes | None, ...], byte_ids: Sequence[int] | None
) -> tuple[int, ...]:
    ids = tuple(byte_ids or ())
    if len(ids) != 256 or any(tokens[i] != bytes([byte]) for byte, i in enumerate(ids)):
        raise TokenizerError("a vocabulary with byte_fallback needs a token for each of 256 bytes")
    return ids


def _find_ids(tokens: tuple[bytes | None, ...], apart: frozenset[int]) -> dict[bytes, int]:
    ids: dict[bytes, int] = {}
    for i, token in enumerate(tokens):
        if token is not None and i not in apart and ids.setdefault(token, i) != i:
            raise TokenizerError(
                f"the ids {ids[token]} and {i} of the vocabulary stand for the same bytes"
            )
    return ids


def _find_bytes(id_of: dict[bytes, int]) -> tuple[int, ...]:
    missing = [byte for byte in range(256) if bytes([byte]) not in id_of]
    if missing:
        raise TokenizerError(
            f"the vocabulary lacks {len(missing)} of the 256 bytes, first 0x{missing[0]:02X}; "
            "text with them could not be encoded"
        )
    return tuple(id_of[bytes([byte])] for byte in range(256))


def _find_characters(id_of: dict[bytes, int]) -> dict[str, int]:
    texts = ((token.decode("utf-8"), i) for token, i in id_of.items())
    return {text: i for text, i in texts if len(text) == 1}
