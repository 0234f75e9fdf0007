"""Words -> slots of a hash table in one flat array: open addressing, exact comparison, no growth.

A table of n slots (a power of two) is uint64 (4 n,). A slot is `key0 key1 tag value`:

* A word of up to 16 bytes is `key0 key1` itself. Of a longer one key0 is a hash and key1 the place
  where the array `kept` (uint8, with `PADDING` bytes behind the last word) has its bytes.
* `tag` holds the length in its low 16 bits, so it is 0 only in an empty slot. Its other 48 bits and
  `value` belong to the caller.

Kernels look words up; enlarging is left to NumPy (`rehash`), which needs no compiler. A table must
never be full: `find_slot` would not end. Keep it at most half full.
"""

from collections.abc import Sequence

import numpy as np

from mlxgpt.text.compiled.jit import helper
from mlxgpt.text.compiled.loads import GOLDEN, MIX_1, MIX_2, U, load64

SLOT = 4
"""Numbers in a slot."""
LONGEST = 0xFFFF
"""Bytes of the longest word that a table can hold."""
INLINE = 16
"""Bytes up to which a word is its own key."""

_HUGE_PAGE = (2 << 20) // 8
LENGTH_MASK = U(0xFFFF)
_LOW_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], np.uint64)


@helper
def word_key(text, start, length):
    """Return (key0, key1) of the word text[start : start + length]; a long one has no key1 yet."""
    if length <= INLINE:
        first = load64(text, start) & _LOW_BYTES[U(min(length, 8))]
        return first, load64(text, start + 8) & _LOW_BYTES[U(max(length - 8, 0))]
    hashed = U(0)
    last = start + length - 8
    i = start
    while i < last:
        hashed = (hashed ^ load64(text, i)) * MIX_1
        hashed ^= hashed >> U(29)
        i += 8
    hashed = (hashed ^ load64(text, last)) * MIX_2
    return hashed ^ (hashed >> U(32)), U(0)


def word_keys(words: Sequence[bytes]) -> np.ndarray:
    """Return what `word_key` says of many words, uint64 (n, 2), by NumPy."""
    lengths = np.fromiter(map(len, words), np.int64, len(words))
    blocks = max(2, -(-int(lengths.max(initial=0)) // 8))
    flat = b"".join([word.ljust(8 * blocks, b"\0") for word in words])
    eights = np.frombuffer(flat, "<u8").reshape(-1, blocks)
    keys = eights[:, :2].copy()
    long = np.flatnonzero(lengths > INLINE)
    hashed = np.zeros(long.size, np.uint64)
    for block in range((blocks * 8 - 8) // 8):
        more = 8 * block < lengths[long] - 8
        mixed = (hashed ^ eights[long, block]) * MIX_1
        hashed = np.where(more, mixed ^ (mixed >> U(29)), hashed)
    last = [int.from_bytes(words[i][-8:], "little") for i in long.tolist()]
    hashed = (hashed ^ np.array(last, np.uint64)) * MIX_2
    keys[long, 0], keys[long, 1] = hashed ^ (hashed >> U(32)), 0
    return keys


@helper
def hash_key(key0, key1, length):
    """Return the hash of what `word_key` gave; `length` is uint64. Works on arrays too."""
    mixed = (key0 ^ (key1 * MIX_2) ^ length) * GOLDEN
    return mixed ^ (mixed >> U(32))


@helper
def find_slot(text, start, length, key0, key1, table, kept):
    """Return the index in `table` of the word's slot, or of the empty slot where it belongs."""
    n = U(length)
    last = U(table.size - SLOT)
    slot = (hash_key(key0, key1, n) << U(2)) & last
    while True:
        tag = table[slot + U(2)]
        if tag == U(0):
            return slot
        if table[slot] == key0 and (tag & LENGTH_MASK) == n:
            if length <= INLINE:
                if table[slot + U(1)] == key1:
                    return slot
            elif _same_bytes(text, start, length, kept, np.int64(table[slot + U(1)])):
                return slot
        slot = (slot + U(SLOT)) & last


@helper
def _same_bytes(text, start, length, kept, at):
    i = 0
    while i < length - 8:
        if load64(text, start + i) != load64(kept, at + i):
            return False
        i += 8
    return load64(text, start + length - 8) == load64(kept, at + length - 8)


def new_table(slots: int) -> np.ndarray:
    """Return an empty table; `slots` is a power of two."""
    assert slots & (slots - 1) == 0, "the number of slots must be a power of two"
    return huge_zeros(SLOT * slots)


def huge_zeros(n: int) -> np.ndarray:
    """Return uint64 (n,) of zeros, in huge pages if there are such and it fills one.

    NumPy asks Linux for them; they begin at multiples of their size. The first touch of a page
    costs as much as merging a word, and words are scattered over all the small pages of a table.
    """
    if n < _HUGE_PAGE:
        return np.zeros(n, np.uint64)
    room = np.zeros(n + _HUGE_PAGE, np.uint64)
    skip = -(room.ctypes.data // room.itemsize) % _HUGE_PAGE
    return room[skip : skip + n]


def rehash(table: np.ndarray, slots: int) -> np.ndarray:
    """Return a table of `slots` slots (a power of two) with all that `table` holds."""
    old = table.reshape(-1, SLOT)
    old = old[old[:, 2] != 0]
    length = old[:, 2] & LENGTH_MASK
    key1 = np.where(length > INLINE, U(0), old[:, 1])
    new = new_table(slots)
    new.reshape(-1, SLOT)[place(hash_key.py_func(old[:, 0], key1, length), slots)] = old
    return new


def place(hashes: np.ndarray, slots: int) -> np.ndarray:
    """Put distinct keys into an empty table at once: uint64 hashes (n,) -> int64 slots (n,).

    The rule is that of the kernels: from slot `hash & (slots - 1)` on, the first that is free.
    `slots` is a power of two above n.
    """
    assert hashes.size < slots, "the table must keep a free slot"
    assert slots & (slots - 1) == 0, "the number of slots must be a power of two"
    slot = (hashes & U(slots - 1)).astype(np.int64)
    owner = np.full(slots, -1, np.int64)
    waiting = np.arange(slot.size)
    while waiting.size:
        free = waiting[owner[slot[waiting]] < 0]
        owner[slot[free]] = free  # of several that want a slot, one gets it
        waiting = waiting[owner[slot[waiting]] != waiting]
        slot[waiting] = (slot[waiting] + 1) & (slots - 1)
    return slot


def enlarged(array: np.ndarray, size: int, fill: int = 0) -> np.ndarray:
    """Return a copy of a flat array with `size` items, the new ones being `fill`."""
    new = np.full(size, fill, array.dtype)
    new[: array.size] = array
    return new
