"""One word -> its ids, with or without drops: the inner part of the encode kernel.

The symbols of a word stay where they are and are linked, so a merge moves nothing. A candidate is
`rank << 32 | place`, so that numbers are ordered as candidates are looked at. In short words the
next one is found by looking through all, in long ones by a heap: n log n.
"""

from typing import NamedTuple

import numpy as np

from mlxgpt.text.compiled.drop_draws import LONGEST_GAP, draw, gap_of
from mlxgpt.text.compiled.jit import helper
from mlxgpt.text.compiled.loads import U
from mlxgpt.text.compiled.merge_tables import NOBODY, early_rank, first_symbols, pair_rank

MOST_SCANNED = 48
"""Symbols of the longest word that is looked through instead of using the heap."""

_BLOCK = 8  # candidates that are looked through at once
_NONE = 2**63 - 1
_UNLIMITED = 1 << 62
_PLACE = 2**32 - 1


class Scratch(NamedTuple):
    """Room for merging one word of up to n bytes; its symbols are at the places from 1 on."""

    ids: np.ndarray
    """int32 (n,): the ids of the word, in the end."""
    numbers: np.ndarray
    """int64 (n + 2,): the symbols, with a `NOBODY` on either side."""
    candidates: np.ndarray
    """int64 (n + 10,): place -> the candidate that begins there."""
    after: np.ndarray
    """int64 (n + 2,): place -> the next symbol's."""
    before: np.ndarray
    heap: np.ndarray
    """int64 (3 n,): each merge makes at most two candidates; those that wait are at the end."""
    gaps: np.ndarray
    """int64: the first gaps of the word, if they are given."""


def new_scratch(n: int) -> Scratch:
    """Return room for words of up to `n` bytes."""
    sizes = (n + 2, n + 2 + _BLOCK, n + 2, n + 2, 3 * n, LONGEST_GAP)
    return Scratch(np.zeros(n, np.int32), *(np.zeros(size, np.int64) for size in sizes))


@helper
def _least(candidates, i, dropped):
    """Return the least of a block's candidates behind `dropped`: a tree, not a chain."""
    c0 = _behind(candidates[U(i)], dropped)
    c1 = _behind(candidates[U(i + 1)], dropped)
    c2 = _behind(candidates[U(i + 2)], dropped)
    c3 = _behind(candidates[U(i + 3)], dropped)
    c4 = _behind(candidates[U(i + 4)], dropped)
    c5 = _behind(candidates[U(i + 5)], dropped)
    c6 = _behind(candidates[U(i + 6)], dropped)
    c7 = _behind(candidates[U(i + 7)], dropped)
    return min(min(min(c0, c1), min(c2, c3)), min(min(c4, c5), min(c6, c7)))


@helper
def _behind(candidate, dropped):
    return candidate if candidate > dropped else _NONE


@helper
def merge_word(text, start, length, tables, scratch, n_given, live, counter, draws):
    """Write the ids of a word to `scratch.ids`.

    The first `n_given` gaps are in `scratch.gaps`; after them gaps are drawn if `live`, else there
    is no further drop. Returns how many ids, how many merges after the last drop, and how many
    drops.
    """
    ids, numbers, candidates, after, before, heap, gaps = scratch
    n = first_symbols(text, start, length, tables, numbers)
    scan = n <= MOST_SCANNED
    size = 0  # of the heap
    waiting = heap.size  # where those begin that were dropped in this step
    numbers[0] = NOBODY
    numbers[U(n + 1)] = NOBODY
    for i in range(1, n + 1):
        after[U(i)] = i + 1
        before[U(i)] = i - 1
        candidate = _candidate(early_rank(tables, numbers[U(i)], numbers[U(i + 1)]), i)
        candidates[U(i)] = candidate
        if not scan and candidate != _NONE:
            waiting -= 1
            heap[U(waiting)] = candidate
    for i in range(n + 1, n + _BLOCK):
        candidates[U(i)] = _NONE
    gap = 0  # candidates to accept before the next drop
    drop_due = False  # else there is another gap behind this one
    k = 0  # the gap that comes next
    drops = 0
    merges = 0
    dropped = -1  # the last candidate dropped in this step
    fresh = True  # a new step begins
    while True:
        best = _NONE
        if scan:
            for i in range(1, n, _BLOCK):
                best = min(best, _least(candidates, i, dropped))
        else:
            while fresh and waiting < heap.size:
                size = _push(heap, size, heap[U(waiting)])
                waiting += 1
            fresh = False
            while size > 0:
                candidate = heap[0]
                size = _pop(heap, size)
                if candidates[U(candidate & _PLACE)] == candidate:  # else it is outdated
                    best = candidate
                    break
        if best == _NONE:
            break
        while gap == 0 and not drop_due:
            if k < n_given:
                gap = gaps[U(k)]
                drop_due = True
            elif live:
                gap = gap_of(draw(counter, k), draws)
                drop_due = gap < LONGEST_GAP
            else:
                gap = _UNLIMITED
            k += 1
        if gap == 0:
            drop_due = False
            drops += 1
            merges = 0
            dropped = best
            if not scan:
                waiting -= 1
                heap[U(waiting)] = best
            continue
        gap -= 1
        merges += 1
        dropped = -1
        fresh = True
        i = best & _PLACE
        new = tables.first_product + (best >> 32)
        if tables.products.size > 0:
            new = tables.products[U(best >> 32)]
        left = before[U(i)]
        gone = after[U(i)]
        right = after[U(gone)]
        numbers[U(i)] = new
        after[U(i)] = right
        before[U(right)] = i
        candidates[U(gone)] = _NONE
        with_left = _candidate(pair_rank(tables, numbers[U(left)], new), left)
        with_right = _candidate(pair_rank(tables, new, numbers[U(right)]), i)
        candidates[U(left)] = with_left
        candidates[U(i)] = with_right
        if not scan:
            if with_left != _NONE:
                waiting -= 1
                heap[U(waiting)] = with_left
            if with_right != _NONE:
                waiting -= 1
                heap[U(waiting)] = with_right
    m = 0
    i = 1
    while i <= n:
        ids[U(m)] = tables.ids[U(numbers[U(i)])]
        m += 1
        i = after[U(i)]
    return m, merges, drops


@helper
def _candidate(rank, place):
    return rank << 32 | place if rank >= 0 else _NONE


@helper
def _push(heap, size, item):
    """Add an item to the binary heap heap[:size], smallest first; return the new size."""
    i = size
    while i > 0:
        up = (i - 1) >> 1
        if heap[U(up)] < item:
            break
        heap[U(i)] = heap[U(up)]
        i = up
    heap[U(i)] = item
    return size + 1


@helper
def _pop(heap, size):
    """Remove the smallest item, heap[0]; return the new size."""
    size -= 1
    item = heap[U(size)]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and heap[U(child + 1)] < heap[U(child)]:
            child += 1
        if item < heap[U(child)]:
            break
        heap[U(i)] = heap[U(child)]
        i = child
    heap[U(i)] = item
    return size
