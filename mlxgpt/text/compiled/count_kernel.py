"""Bytes and the ends of their words -> how often each word occurs, in a table that never overflows.

Words of up to `LONGEST` bytes are counted in the slot of the table. A longer one is not looked for:
it is kept anew each time it occurs, and its count is 1.
"""

from mlxgpt.text.compiled.jit import kernel
from mlxgpt.text.compiled.loads import PADDING, U
from mlxgpt.text.compiled.word_table import (
    INLINE,
    LONGEST,
    SLOT,
    find_slot,
    word_key,
)

WORDS, LETTERS, NEXT, START, NEED = range(5)
"""Numbers in `state`: words and bytes kept; the next of the words asked for and where it starts;
bytes of a word that did not fit."""
LENGTH_BITS = U(16)
"""Bits of a tag below the number of the word; `value` is its count."""


@kernel
def count_words(text, ends, amounts, table, kept, lengths, state):
    """Count the words of `text` that end at `ends`, from number state[NEXT] on.

    `amounts` says how often each occurs, or holds one number for all. Stops early, and returns
    False, when table, `kept` or `lengths` lack room; call again once they are larger.
    """
    word, start = state[NEXT], state[START]
    step = 1 if amounts.size == ends.size else 0
    while word < ends.size:
        end = ends[U(word)]
        length = end - start
        key0, key1 = word_key(text, start, length)
        slot = U(0)
        known = False
        if length <= LONGEST:
            slot = find_slot(text, start, length, key0, key1, table, kept)
            known = table[slot + U(2)] != U(0)
        if not known:
            number, at = state[WORDS], state[LETTERS]
            if (
                2 * SLOT * number >= table.size
                or number >= lengths.size
                or at + length + PADDING > kept.size
            ):
                state[NEXT], state[START], state[NEED] = word, start, length
                return False
            for i in range(length):
                kept[U(at + i)] = text[U(start + i)]
            if length <= LONGEST:
                table[slot] = key0
                table[slot + U(1)] = key1 if length <= INLINE else U(at)
                table[slot + U(2)] = U(length) | U(number) << LENGTH_BITS
                table[slot + U(3)] = U(0)
            lengths[U(number)] = length
            state[WORDS] = number + 1
            state[LETTERS] = at + length
        if length <= LONGEST:
            table[slot + U(3)] += U(amounts[U(word * step)])
        start = end
        word += 1
    state[NEXT], state[START] = word, start
    return True
