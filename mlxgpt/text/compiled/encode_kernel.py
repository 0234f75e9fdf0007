"""Words -> ids, remembering each word, and under dropout the most likely ways of dropping merges.

An entry of the memory is two numbers. `tag` is `children:32 | merges:8 | ids:8 | length:16`, where
`merges` counts the merges after the last drop, and `value` holds one or two ids, or where `ids` has
them. A word's entry stands in the table of words and has the plain encoding. Its children are the
encodings with a first drop after 0, 1, ... merges, and theirs those with a second drop: a row of
`merges` entries in `nodes`, made when the first of them is needed. Whether an entry is remembered
or computed again makes no difference to the ids.
"""

from typing import NamedTuple

import numpy as np

from mlxgpt.text.compiled.drop_draws import LONGEST_GAP, POSITION_STEP, Draws, draw, gap_of
from mlxgpt.text.compiled.jit import kernel
from mlxgpt.text.compiled.loads import PADDING, U
from mlxgpt.text.compiled.merge_kernel import Scratch, merge_word
from mlxgpt.text.compiled.merge_tables import MergeTables
from mlxgpt.text.compiled.word_table import INLINE, SLOT, find_slot, word_key

DONE, TABLE_FULL, NODES_FULL, LONG_WORD = range(4)
"""What `encode_words` returns: all done, or which arrays must be enlarged."""

LONGEST_KEPT = 255
"""Bytes of the longest word that is remembered."""
MOST_DROPS = 4
"""Drops of the longest history that is remembered."""

WORD, BEGIN, OUT, NEED, ENTRIES, IDS, KEPT, NODES, NODE_IDS = range(9)
"""Fields of `Memory.state`: the next word, where it begins, ids written, bytes needed, and how much
of the table, of `ids`, of `kept`, of `nodes` and of `node_ids` is used."""

CHILDREN_BITS = U(2**32 - 1) << U(32)
_BYTE, _ID = U(0xFF), U(2**32 - 1)


class Memory(NamedTuple):
    """What one thread remembers."""

    table: np.ndarray
    """The table of words (`word_table`)."""
    ids: np.ndarray
    """int32: the ids of words with more than two."""
    kept: np.ndarray
    """uint8: the bytes of words of more than `INLINE`."""
    nodes: np.ndarray
    """uint64 (2 n,): tag and value of n entries; the first is not used."""
    node_ids: np.ndarray
    """int32: the ids of nodes with more than two."""
    state: np.ndarray
    """int64 (9,)"""


class Wholes(NamedTuple):
    """Words that are one id although merging does not lead to it."""

    table: np.ndarray
    """A table of words whose values are ids."""
    kept: np.ndarray


@kernel
def encode_words(text, ends, tables, wholes, memory, scratch, base, position, draws, out):
    """Append the ids of the words that end at ends[state[WORD]:] to `out` from state[OUT] on.

    `base` and `draws` are those of the dropout (`draws` empty: none) and `position` that of text[0]
    in it. `out` has room for one id a byte and one more. Words that are done stay done when an
    array is too small: enlarge it and call again.
    """
    tables, scratch, draws = MergeTables(*tables), Scratch(*scratch), Draws(*draws)
    wholes = Wholes(*wholes)
    table, kept_ids, kept, nodes, node_ids, state = memory
    dropout = draws.thresholds.size > 0
    w, i, m = state[WORD], state[BEGIN], state[OUT]
    status = DONE
    while w < ends.size:
        length = ends[U(w)] - i
        key0, key1 = word_key(text, i, length)
        keep = length <= LONGEST_KEPT
        slot = U(0)
        tag = U(0)
        value = U(0)
        if keep:
            slot = find_slot(text, i, length, key0, key1, table, kept)
            tag = table[slot + U(2)]
            value = table[slot + U(3)]
            if tag != U(0) and not dropout:  # what nearly always happens has a short way
                n = np.int64(tag >> U(16) & _BYTE)
                out[U(m)] = np.int32(value & _ID)
                out[U(m + 1)] = np.int32(value >> U(32))
                if n > 2:
                    for k in range(n):
                        out[U(m + k)] = kept_ids[value + U(k)]
                m += n
                i += length
                w += 1
                continue
        node = 0  # 0: the word itself
        depth = 0
        live = False
        if tag == U(0) or dropout:
            counter = base + U(position + i) * POSITION_STEP
            live = dropout and not keep
            while True:
                if tag == U(0):
                    if length > scratch.ids.size:
                        state[NEED] = length
                        status = LONG_WORD
                        break
                    remember = keep and not live
                    if remember and depth > 0:
                        if state[NODE_IDS] + length > node_ids.size:
                            status = NODES_FULL
                            break
                    elif remember and (
                        2 * SLOT * (state[ENTRIES] + 1) > table.size
                        or state[IDS] + length > kept_ids.size
                        or state[KEPT] + length + PADDING > kept.size
                    ):
                        status = TABLE_FULL
                        break
                    n, merges, drops = merge_word(
                        text, i, length, tables, scratch, depth, live, counter, draws
                    )
                    if drops == 0 and wholes.table.size > 0:
                        at = find_slot(text, i, length, key0, key1, wholes.table, wholes.kept)
                        if wholes.table[at + U(2)] != U(0):
                            n = 1
                            scratch.ids[0] = np.int32(wholes.table[at + U(3)])
                    if not remember:
                        live = True
                        for k in range(n):
                            out[U(m + k)] = scratch.ids[U(k)]
                        m += n
                        break
                    value = U(scratch.ids[0])
                    tag = U(length) | U(n) << U(16) | U(merges) << U(24)
                    if n == 2:
                        value |= U(scratch.ids[1]) << U(32)
                    if node == 0:
                        if n > 2:
                            value = U(state[IDS])
                            for k in range(n):
                                kept_ids[value + U(k)] = scratch.ids[U(k)]
                            state[IDS] += n
                        if length > INLINE:
                            key1 = U(state[KEPT])
                            for k in range(length):
                                kept[key1 + U(k)] = text[U(i + k)]
                            state[KEPT] += length
                        table[slot] = key0
                        table[slot + U(1)] = key1
                        table[slot + U(2)] = tag
                        table[slot + U(3)] = value
                        state[ENTRIES] += 1
                    else:
                        if n > 2:
                            value = U(state[NODE_IDS])
                            for k in range(n):
                                node_ids[value + U(k)] = scratch.ids[U(k)]
                            state[NODE_IDS] += n
                        nodes[U(2 * node)] = tag
                        nodes[U(2 * node + 1)] = value
                if not dropout:
                    break
                merges = np.int64(tag >> U(24) & _BYTE)
                if merges == 0:
                    break
                u = draw(counter, depth)
                if merges <= LONGEST_GAP and u < draws.thresholds[U(merges)]:
                    break  # no further drop
                if merges > LONGEST_GAP or depth == MOST_DROPS:
                    live = True
                    tag = U(0)
                    continue
                gap = gap_of(u, draws)
                children = np.int64(tag >> U(32))
                if children == 0:
                    children = state[NODES]
                    if 2 * (children + merges) > nodes.size:
                        status = NODES_FULL
                        break
                    state[NODES] += merges
                    tag |= U(children) << U(32)
                    if node == 0:
                        table[slot + U(2)] = tag
                    else:
                        nodes[U(2 * node)] = tag
                scratch.gaps[U(depth)] = gap
                depth += 1
                node = children + gap
                tag = nodes[U(2 * node)]
                value = nodes[U(2 * node + 1)]
            if status != DONE:
                break
        if not live:
            n = np.int64(tag >> U(16) & _BYTE)
            if n <= 2:
                out[U(m)] = np.int32(value & _ID)
                out[U(m + 1)] = np.int32(value >> U(32))
            elif node == 0:
                for k in range(n):
                    out[U(m + k)] = kept_ids[value + U(k)]
            else:
                for k in range(n):
                    out[U(m + k)] = node_ids[value + U(k)]
            m += n
        i += length
        w += 1
    state[WORD], state[BEGIN], state[OUT] = w, i, m
    return status
