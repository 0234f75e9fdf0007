"""Words as rows of symbols -> merges: count pairs and join the most frequent one, in machine code.

The words stand in one row of cells, a byte each, between borders. A token has its id in its first
and in its last cell, so its neighbours begin and end beside it: a linked list without links. A pair
is found again by its *seam*, the cell where its right token begins.

Seams of a pair appear all at once, in the step that makes the newer of its two tokens, and from
then on only vanish. So a pair is a row `key count start size` with a fixed stretch of `seams`, is
pushed on the heap once, and its count only falls. The same holds for what a step changes: all new
pairs have the new token on one side, so they are added up by the other one, without hashing.

Pairs rarer than `least` are not stored. Once no stored pair is left, Python lowers `least` and has
all pairs counted anew: the first steps need not carry the millions of pairs that never win.
"""

from typing import Any, NamedTuple

import numpy as np

from mlxgpt.text.compiled.jit import helper, kernel
from mlxgpt.text.compiled.loads import GOLDEN, U
from mlxgpt.text.compiled.pair_heap import push, replace_first

BORDER, INSIDE = -1, -2
"""Cells between two words, and cells of a token that are neither its first nor its last."""
KEY, COUNT, START, SIZE = range(4)
"""Columns of `rows`; the key is left << 32 | right, or -1: empty."""
MERGES, PAIRS, SEAMS, HEAP, CELL, NEED = range(6)
"""Numbers in `state`: how many there are of each; where `list_pairs` goes on; seams of a merge."""
DONE, FULL, EXHAUSTED = range(3)
"""Why a kernel returns: all is done; enlarge and call again; no stored pair is left."""


class Arrays(NamedTuple):
    """All that the kernels work on. V is the largest number of tokens; seams need int64 late."""

    cells: Any
    """int32 (n, 2): symbol, and how often the word occurs, or -1 - its place in `heavy`."""
    heavy: Any
    """int64 (h,): the numbers of words that occur 2**31 times or more."""
    letters: Any
    """uint8 (n,): the byte of each cell, whatever is merged."""
    lengths: Any
    """int64 (V,): bytes of each token."""
    rows: Any
    """int64 (2**k, 4): the pairs by their hash."""
    heap: Any
    """int64 (m, 2): (count when it was pushed, key), four children to a node."""
    seams: Any
    """int32 or int64 (s,)."""
    changes: Any
    """int64 (2 V, 2): count and size of a new pair, by its other token (+ V if that is right)."""
    touched: Any
    """int64 (2 V,): the rows of `changes` in use."""
    found: Any
    """like seams, (2 e, 2): row of `changes`, seam; for the longest stretch of seams e."""
    forbidden: Any
    """uint8 (f,): the bytes that no product may have, one after the other."""
    forbidden_ends: Any
    """int64 (g,)."""
    merges: Any
    """int64 (M, 3): left, right, count."""
    state: Any
    """int64 (6,)."""


@helper
def find_pair(rows, key):
    """Return the row of a pair, or the empty one where it belongs."""
    last = U(rows.shape[0] - 1)
    mixed = U(key) * GOLDEN
    row = (mixed ^ (mixed >> U(32))) & last
    while rows[row, KEY] != key and rows[row, KEY] >= 0:
        row = (row + U(1)) & last
    return row


@helper
def weight_at(cells, heavy, cell):
    """Return how often the word of a cell occurs."""
    weight = np.int64(cells[U(cell), 1])
    if weight < 0:
        return heavy[U(-1 - weight)]
    return weight


@helper
def is_forbidden(letters, start, length, forbidden, ends):
    """Say whether letters[start : start + length] is one of the forbidden byte strings."""
    begin = 0
    for f in range(ends.size):
        end = ends[U(f)]
        if end - begin == length:
            same = 0
            while same < length and letters[U(start + same)] == forbidden[U(begin + same)]:
                same += 1
            if same == length:
                return True
        begin = end
    return False


@kernel
def list_pairs(arrays, fill):
    """Go through all words: count each pair, or with `fill` write the seams of the stored ones.

    Takes up at state[CELL]. To count, `rows` begin empty; to fill, with the sizes 0.
    """
    # Arrays are handed to helpers one by one: a tuple of them costs two atomic steps for each.
    cells, heavy, lengths = arrays.cells, arrays.heavy, arrays.lengths
    rows, seams, state = arrays.rows, arrays.seams, arrays.state
    at = state[CELL]
    while at < cells.shape[0]:
        left = np.int64(cells[U(at), 0])
        if left < 0:
            at += 1
            continue
        seam = at + lengths[U(left)]
        right = np.int64(cells[U(seam), 0])
        if right >= 0:
            key = left << 32 | right
            row = find_pair(rows, key)
            known = rows[row, KEY] >= 0
            if fill:
                if known:
                    seams[U(rows[row, START] + rows[row, SIZE])] = seam
            else:
                if not known:
                    if 2 * state[PAIRS] >= rows.shape[0]:
                        state[CELL] = at
                        return FULL
                    state[PAIRS] += 1
                    rows[row, KEY] = key
                rows[row, COUNT] += weight_at(cells, heavy, seam)
                known = True
            if known:
                rows[row, SIZE] += 1
        at = seam
    return DONE


@kernel
def join_pairs(arrays, until, least, longest):
    """Merge the first pair of the heap again and again, until there are `until` merges.

    Pairs that occur fewer than `least` times, or make a token of more than `longest` bytes, are
    neither merged nor stored.
    """
    cells, heavy, letters, lengths = arrays.cells, arrays.heavy, arrays.letters, arrays.lengths
    rows, heap, seams, changes = arrays.rows, arrays.heap, arrays.seams, arrays.changes
    touched, found, merges, state = arrays.touched, arrays.found, arrays.merges, arrays.state
    forbidden, forbidden_ends = arrays.forbidden, arrays.forbidden_ends
    most = changes.shape[0] >> 1
    while state[MERGES] < until:
        if state[HEAP] == 0:
            return EXHAUSTED
        key = heap[0, 1]
        row = find_pair(rows, key)
        count, start, size = rows[row, COUNT], rows[row, START], rows[row, SIZE]
        if count != heap[0, 0] and count >= least:  # it has become rarer since it was pushed
            replace_first(heap, state[HEAP], count, key)
            continue
        new = 256 + state[MERGES]
        if count >= least:
            pairs = min(2 * size, 2 * new + 2)
            if (
                state[SEAMS] + 2 * size > seams.size
                or 2 * (state[PAIRS] + pairs) > rows.shape[0]
                or state[HEAP] + pairs > heap.shape[0]
            ):
                state[NEED] = size
                return FULL
        state[HEAP] -= 1
        end = state[HEAP]
        if end > 0:
            replace_first(heap, end, heap[U(end), 0], heap[U(end), 1])
        if count < least:
            continue
        left, right = key >> 32, key & 0xFFFFFFFF
        n_left, n_right = lengths[U(left)], lengths[U(right)]
        length = n_left + n_right
        # The bytes around a seam stay the same, so one that is out of date will do.
        begin = np.int64(seams[U(start)]) - n_left
        if is_forbidden(letters, begin, length, forbidden, forbidden_ends):
            continue
        merges[U(state[MERGES]), 0] = left
        merges[U(state[MERGES]), 1] = right
        merges[U(state[MERGES]), 2] = count
        state[MERGES] += 1
        lengths[U(new)] = length
        rows[row, COUNT] = 0
        # 1. Join, from left to right, and add up the new pairs by their other token.
        n_found = n_touched = undone = 0
        for i in range(start, start + size):
            seam = np.int64(seams[U(i)])
            if cells[U(seam - 1), 0] != left or cells[U(seam), 0] != right:
                continue
            first, end = seam - n_left, seam + n_right
            cells[U(seam - 1), 0] = INSIDE
            cells[U(seam), 0] = INSIDE
            cells[U(first), 0] = new
            cells[U(end - 1), 0] = new
            weight = weight_at(cells, heavy, seam)
            for side in range(2):
                other = np.int64(cells[U(end if side else first - 1), 0])
                if other < 0:
                    continue
                if other == new:  # what was (new, left) a moment ago is (new, new)
                    changes[U(most + left), 0] -= weight
                    undone += weight
                change = other + most * side
                if changes[U(change), 1] == 0:
                    touched[U(n_touched)] = change
                    n_touched += 1
                changes[U(change), 0] += weight
                changes[U(change), 1] += 1
                found[U(n_found), 0] = change
                found[U(n_found), 1] = end if side else first
                n_found += 1
        # 2. Lower the counts of the pairs that were there before, and store the new ones.
        for i in range(n_touched):
            change = touched[U(i)]
            gained, size = changes[U(change), 0], changes[U(change), 1]
            lost = gained
            if change < most:
                other = change
                before, after = other << 32 | left, other << 32 | new
            else:
                other = change - most
                before, after = right << 32 | other, new << 32 | other
                if other == left:
                    lost += undone
            if other != new:
                row = find_pair(rows, before)
                if rows[row, KEY] >= 0:
                    rows[row, COUNT] -= lost
            changes[U(change), 0] = 0
            changes[U(change), 1] = -1  # from here on: where its next seam goes, if it is stored
            if gained >= least and length + lengths[U(other)] <= longest:
                row = find_pair(rows, after)
                rows[row, KEY] = after
                rows[row, COUNT] = gained
                rows[row, START] = state[SEAMS]
                rows[row, SIZE] = size
                changes[U(change), 1] = state[SEAMS]
                state[SEAMS] += size
                state[PAIRS] += 1
                push(heap, state[HEAP], gained, after)
                state[HEAP] += 1
        # 3. Write the seams of the new pairs.
        for i in range(n_found):
            change = np.int64(found[U(i), 0])
            place = changes[U(change), 1]
            if place >= 0:
                seams[U(place)] = found[U(i), 1]
                changes[U(change), 1] = place + 1
        for i in range(n_touched):
            changes[U(touched[U(i)]), 1] = 0
    return DONE
