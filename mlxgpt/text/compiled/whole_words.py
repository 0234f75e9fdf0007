"""Tokens -> those that merging does not reach: with `ignore_merges` they are words all the same."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from mlxgpt.text.compiled.encode_kernel import Wholes
from mlxgpt.text.compiled.loads import PADDING, U
from mlxgpt.text.compiled.word_table import (
    INLINE,
    LONGEST,
    SLOT,
    hash_key,
    new_table,
    place,
    word_keys,
)

EncodeWords = Callable[[bytes, np.ndarray], np.ndarray]
"""(words in a row, their ends) -> ids, by merging alone."""


def no_wholes() -> Wholes:
    """Return what stands for a tokenizer that merges every word."""
    return Wholes(np.zeros(0, np.uint64), np.zeros(0, np.uint8))


def whole_words(
    tokens: Sequence[bytes | None], apart: Collection[int], encode: EncodeWords
) -> Wholes:
    """Return the words among `tokens` (id -> bytes, or None) that `encode` gives other ids.

    `tokens` holds the bytes of every id that `encode` can return. The ids `apart` stand for bytes
    and for no word.
    """
    bytes_only = frozenset(apart)
    known = [(i, word) for i, word in enumerate(tokens) if word and i not in bytes_only]
    ids = np.array([i for i, _ in known], np.int64)
    words = [word for _, word in known]
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    ends = np.cumsum(lengths)
    size = np.array([len(token) if token else 0 for token in tokens], np.int64)
    got = encode(b"".join(words), ends)
    # Where the ids end tells which is the last one of a word. If it is the word's own it is all.
    last = np.searchsorted(np.cumsum(size[got]), ends)
    left = np.flatnonzero((got[last] != ids) & (lengths <= LONGEST))
    return _table([words[i] for i in left], ids[left])


def _table(words: list[bytes], ids: np.ndarray) -> Wholes:
    if not words:
        return no_wholes()
    table = new_table(1 << (2 * len(words)).bit_length())
    lengths = np.fromiter(map(len, words), np.uint64, len(words))
    keys = word_keys(words)
    slots = table.reshape(-1, SLOT)
    at = place(hash_key.py_func(*keys.T, lengths), len(slots))
    long = lengths > INLINE
    offsets = np.cumsum(np.where(long, lengths, U(0))) - lengths
    keys[long, 1] = offsets[long]
    slots[at] = np.column_stack([keys, lengths, ids.astype(np.uint64)])
    kept = b"".join([word for word in words if len(word) > INLINE]) + bytes(PADDING)
    return Wholes(table, np.frombuffer(bytearray(kept), np.uint8))
