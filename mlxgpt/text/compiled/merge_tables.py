"""Merges and symbols -> the arrays in which kernels look them up.

Inside of the kernels tokens have numbers of their own, 0..K-1: the first symbols of words, and what
merges take and make. So any ids will do, and a pair and its rank fit into 64 bits.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.text.compiled.jit import helper
from mlxgpt.text.compiled.loads import GOLDEN, U, byte_at
from mlxgpt.text.compiled.word_table import place

MOST_ID = 2**31 - 1
_NUMBER_BITS, _RANK_BITS = U(21), U(22)
_RANK_MASK, _NO_PAIR = U(2**22 - 1), U(2**64 - 1)
NOBODY = 2**21 - 1
"""A number that no token has."""
MOST_NUMBERS = NOBODY
"""Tokens that the kernels can tell apart."""
MOST_MERGES = 2**22 - 1
_EARLY = 256
_PAGE_BITS = 7


class MergeTables(NamedTuple):
    """What kernels know of a tokenizer."""

    byte_numbers: np.ndarray
    """int32 (256,): byte -> number."""
    char_pages: np.ndarray
    """int32: code point >> 7 -> row of `char_numbers`; empty if the symbols are bytes."""
    char_numbers: np.ndarray
    """int32 (128 rows,): character -> number, or -1."""
    early_pairs: np.ndarray
    """int32 (65536,): `left << 8 | right` -> rank or -1, for the first 256 numbers."""
    pairs: np.ndarray
    """uint64: hash table of `left << 43 | right << 22 | rank`."""
    products: np.ndarray
    """int32 (M,): rank -> the number that the pair becomes. Empty if it is `first_product` + rank,
    as in most tokenizers: a look-up less."""
    first_product: int
    ids: np.ndarray
    """int32 (K,): number -> id."""


def merge_tables(
    byte_ids: np.ndarray,
    merges: np.ndarray,
    products: np.ndarray,
    char_ids: Mapping[str, int] | None = None,
) -> MergeTables:
    """Build the tables of `merges` (M, 2), the first learned first, all int64.

    With `char_ids` the symbols of a word are its characters, and those without an id their bytes;
    else they are its bytes. Raises `TokenizerError` if there are more than `MOST_MERGES` merges or
    `MOST_NUMBERS` tokens, an id is negative or above `MOST_ID`, a pair or a first symbol stands
    twice, or the sizes do not fit.
    """
    merges = merges.reshape(-1, 2)
    if byte_ids.shape != (256,) or products.shape != (len(merges),):
        raise TokenizerError(
            f"a BPE model needs 256 byte ids and one product a merge, got {byte_ids.size} and "
            f"{products.size} for {len(merges)} merges"
        )
    points, chars = _characters(char_ids)
    firsts = np.concatenate([chars, byte_ids])
    everything = np.concatenate([firsts, products, merges.ravel()])
    if not 0 <= everything.min() <= everything.max() <= MOST_ID:
        wrong = everything.min() if everything.min() < 0 else everything.max()
        raise TokenizerError(f"id {wrong} of the BPE model is not in 0..{MOST_ID}")
    ids, numbers = _numbered(everything)
    if ids.size > MOST_NUMBERS or len(merges) > MOST_MERGES:
        raise TokenizerError(
            f"the BPE model has {ids.size} tokens and {len(merges)} merges; the compiled tier can "
            f"hold {MOST_NUMBERS} and {MOST_MERGES}"
        )
    if np.unique(numbers[: firsts.size]).size != firsts.size:
        raise TokenizerError("two bytes or characters of the BPE model have one id")
    pairs = numbers[firsts.size + products.size :].reshape(-1, 2)
    pages, rows = _char_table(points, numbers[: chars.size], char_ids is not None)
    made = numbers[firsts.size : firsts.size + products.size].astype(np.int32)
    in_order = np.array_equal(made, firsts.size + np.arange(len(merges)))
    return MergeTables(
        numbers[chars.size : firsts.size].astype(np.int32),
        pages,
        rows,
        _early_pairs(pairs),
        _pair_table(pairs),
        made[:0] if in_order else made,
        firsts.size,
        ids.astype(np.int32),
    )


def _numbered(everything: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ids as they were met, and the place in them of each id."""
    distinct, first, inverse = np.unique(everything, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(order.size, np.int64)
    number[order] = np.arange(order.size)
    return distinct[order], number[inverse.ravel()]


def _characters(char_ids: Mapping[str, int] | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the code points in ascending order, so that common ones come early, and the ids."""
    known = sorted((ord(char), token) for char, token in (char_ids or {}).items())
    flat = np.array(known, np.int64).reshape(-1, 2)
    return flat[:, 0], flat[:, 1]


def _char_table(
    points: np.ndarray, numbers: np.ndarray, used: bool
) -> tuple[np.ndarray, np.ndarray]:
    if not used:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    full = np.unique(points >> _PAGE_BITS)
    pages = np.zeros(0x200000 >> _PAGE_BITS, np.int32)  # row 0: no character of it is known
    pages[full] = np.arange(1, full.size + 1)
    rows = np.full((full.size + 1, 1 << _PAGE_BITS), -1, np.int32)
    rows[pages[points >> _PAGE_BITS], points & ((1 << _PAGE_BITS) - 1)] = numbers
    return pages, rows.ravel()


def _early_pairs(pairs: np.ndarray) -> np.ndarray:
    early = np.flatnonzero((pairs < _EARLY).all(axis=1))
    ranks = np.full(_EARLY * _EARLY, -1, np.int32)
    ranks[pairs[early, 0] * _EARLY + pairs[early, 1]] = early
    return ranks


def _pair_table(pairs: np.ndarray) -> np.ndarray:
    left, right = pairs.astype(np.uint64).T
    key = left << _NUMBER_BITS | right
    if np.unique(key).size != key.size:
        raise TokenizerError("a merge of the BPE model stands twice")
    size = 1 << max(4, (4 * len(pairs)).bit_length())
    table = np.full(size, _NO_PAIR, np.uint64)
    ranks = np.arange(len(pairs), dtype=np.uint64)
    table[place(_pair_hash.py_func(key), size)] = key << _RANK_BITS | ranks
    return table


@helper
def _pair_hash(key):
    mixed = key * GOLDEN
    return mixed ^ (mixed >> U(32))


@helper
def pair_rank(tables, left, right):
    """Return the rank of a pair of numbers, or -1; `NOBODY` has no pair."""
    key = U(left) << _NUMBER_BITS | U(right)
    last = U(tables.pairs.size - 1)
    slot = _pair_hash(key) & last
    while True:
        found = tables.pairs[slot]
        if found >> _RANK_BITS == key:
            return np.int64(found & _RANK_MASK)
        if found == _NO_PAIR:
            return np.int64(-1)
        slot = (slot + U(1)) & last


@helper
def early_rank(tables, left, right):
    """The same, quicker for the symbols that words begin with."""
    if left < _EARLY and right < _EARLY:
        return np.int64(tables.early_pairs[U(left << 8 | right)])
    return pair_rank(tables, left, right)


@helper
def first_symbols(text, start, length, tables, numbers):
    """Write the symbols of a word to `numbers` from 1 on and return how many."""
    if tables.char_pages.size == 0:
        for k in range(length):
            numbers[U(k + 1)] = tables.byte_numbers[U(byte_at(text, start + k))]
        return length
    n = 0
    i = start
    while i < start + length:
        point = byte_at(text, i)
        width = 1
        if point >= 0xC0:
            width = 2 + (point >= 0xE0) + (point >= 0xF0)
            point &= 0x7F >> width
            for k in range(1, width):
                point = point << 6 | (byte_at(text, i + k) & 63)
        width = min(width, start + length - i)
        row = np.int64(tables.char_pages[U(point >> _PAGE_BITS)]) << _PAGE_BITS
        number = tables.char_numbers[U(row | (point & ((1 << _PAGE_BITS) - 1)))]
        if number >= 0:
            n += 1
            numbers[U(n)] = number
        else:
            for k in range(width):
                n += 1
                numbers[U(n)] = tables.byte_numbers[U(byte_at(text, i + k))]
        i += width
    return n
