"""Counted words -> merges, by the kernels of `learn_kernel`; the same as `bpe.learned_merges`."""

from collections.abc import Collection

import numpy as np

from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER
from mlxgpt.text.bpe.learned_merges import LearnedMerges, Progress
from mlxgpt.text.compiled.counted_words import CountedWords
from mlxgpt.text.compiled.learn_kernel import (
    BORDER,
    CELL,
    COUNT,
    EXHAUSTED,
    FULL,
    HEAP,
    KEY,
    MERGES,
    NEED,
    PAIRS,
    SEAMS,
    SIZE,
    START,
    Arrays,
    join_pairs,
    list_pairs,
)
from mlxgpt.text.compiled.loads import GOLDEN
from mlxgpt.text.compiled.word_table import place

STEPS = 512
"""Merges between two reports of progress, and so between two chances for a Ctrl-C."""

_FEWEST_ROWS = 1 << 12
_HEAVY = 1 << 31
_FEWEST_INT64 = 1 << 31
"""Cells from which on their positions need 64 bits."""
_UNLIMITED = 1 << 62


def learn_merges(
    words: CountedWords,
    n_tokens: int,
    *,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: Collection[bytes] = (),
    progress: Progress | None = None,
    first_least: int | None = None,
) -> LearnedMerges:
    """Learn what `bpe.learned_merges.learn_merges` learns from the same words.

    `progress` is called every `STEPS` merges and at the end. Pairs that occur fewer than
    `first_least` times are left for later; any number gives the same merges, the time differs.
    """
    wanted = max(0, n_tokens - len(BYTE_ORDER))
    lowest = max(1, min_frequency)
    longest = max_token_length or _UNLIMITED
    arrays = _arrays(words, wanted, forbidden)
    least = first_least
    if least is None:
        # On source, English and many scripts within ten times the count of the last merge.
        least = words.num_bytes // (32 * max(1, wanted))
    least = max(lowest, least)
    state = arrays.state
    arrays = _store_pairs(arrays, least, longest)
    until = min(wanted, STEPS)
    while state[MERGES] < wanted:
        status = join_pairs(arrays, until, least, longest)
        if status == FULL:
            arrays = _enlarged(arrays)
        elif status == EXHAUSTED:
            if least == lowest:
                break
            least = max(lowest, least // 8)
            arrays = _store_pairs(arrays, least, longest)
        else:
            if progress is not None:
                progress(len(BYTE_ORDER) + until, n_tokens)
            until = min(wanted, until + STEPS)
    if progress is not None and state[MERGES] < wanted and state[MERGES] % STEPS:
        progress(len(BYTE_ORDER) + int(state[MERGES]), n_tokens)
    return _result(arrays.merges[: state[MERGES]])


def _result(merges: np.ndarray) -> LearnedMerges:
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    pairs = list(zip(merges[:, 0].tolist(), merges[:, 1].tolist(), strict=True))
    for left, right in pairs:
        tokens.append(tokens[left] + tokens[right])
    return LearnedMerges(tokens=tokens, merges=pairs, counts=merges[:, 2].tolist())


def _arrays(words: CountedWords, n_merges: int, forbidden: Collection[bytes]) -> Arrays:
    """Put the words in a row, a border before, between and behind them; no pairs yet."""
    total = words.lengths.astype(np.float64) @ words.counts.astype(np.float64)
    assert total < 2**63, "more text than 64 bits can count"
    first_id = np.empty(256, np.int32)
    first_id[list(BYTE_ORDER)] = np.arange(256)
    n_words = words.lengths.size
    word = np.repeat(np.arange(n_words), words.lengths)
    cell = np.arange(words.letters.size) + word + 1
    n_cells = words.letters.size + n_words + 1
    heavy = words.counts >= _HEAVY
    weights = words.counts.copy()
    weights[heavy] = -1 - np.arange(np.count_nonzero(heavy))
    cells = np.zeros((n_cells, 2), np.int32)
    cells[:, 0] = BORDER
    cells[cell, 0] = first_id[words.letters]
    cells[cell, 1] = weights.astype(np.int32)[word]
    letters = np.zeros(n_cells, np.uint8)
    letters[cell] = words.letters
    most = len(BYTE_ORDER) + n_merges
    seam = np.int32 if n_cells < _FEWEST_INT64 else np.int64
    joined = b"".join(forbidden)
    return Arrays(
        cells=cells,
        heavy=words.counts[heavy],
        letters=letters,
        lengths=np.ones(most, np.int64),
        rows=_empty_rows(_FEWEST_ROWS),
        heap=np.empty((0, 2), np.int64),
        seams=np.empty(0, seam),
        changes=np.zeros((2 * most, 2), np.int64),
        touched=np.empty(2 * most, np.int64),
        found=np.empty((0, 2), seam),
        forbidden=np.frombuffer(bytearray(joined), np.uint8),
        forbidden_ends=np.cumsum(np.array([len(f) for f in forbidden], np.int64)),
        merges=np.empty((n_merges, 3), np.int64),
        state=np.zeros(6, np.int64),
    )


def _store_pairs(arrays: Arrays, least: int, longest: int) -> Arrays:
    """Count all pairs anew; store those that occur `least` times and make no token too long."""
    state = arrays.state
    arrays.rows[:] = _empty_rows(1)
    state[PAIRS] = state[CELL] = 0
    while list_pairs(arrays, False) == FULL:
        arrays = arrays._replace(rows=_rows(_used(arrays.rows), 2 * len(arrays.rows)))
    pairs = _used(arrays.rows)
    length = arrays.lengths[pairs[:, KEY] >> 32] + arrays.lengths[pairs[:, KEY] & 0xFFFFFFFF]
    pairs = pairs[(pairs[:, COUNT] >= least) & (length <= longest)]
    pairs = pairs[np.lexsort((pairs[:, KEY], -pairs[:, COUNT]))]  # a sorted list is a heap
    sizes = pairs[:, SIZE].copy()
    n_seams = int(sizes.sum())
    pairs[:, START] = np.cumsum(sizes) - sizes
    pairs[:, SIZE] = 0
    kind = arrays.seams.dtype
    arrays = arrays._replace(
        rows=_rows(pairs, _rows_for(len(pairs))),
        heap=_with_room(pairs[:, [COUNT, KEY]], 2 * len(pairs)),
        seams=np.empty(n_seams + n_seams // 2, kind),
        found=np.empty((2 * int(sizes.max(initial=0)), 2), kind),
    )
    state[CELL] = 0
    list_pairs(arrays, True)
    state[PAIRS] = state[HEAP] = len(pairs)
    state[SEAMS] = n_seams
    return arrays


def _enlarged(arrays: Arrays) -> Arrays:
    """Return arrays with room for the merge that did not fit, and as much again."""
    state = arrays.state
    new_seams = 2 * int(state[NEED])
    new_pairs = min(new_seams, len(arrays.changes))
    if state[SEAMS] + new_seams > arrays.seams.size:
        seams = _with_room(arrays.seams[: state[SEAMS]], int(state[SEAMS]) // 2 + new_seams)
        arrays = arrays._replace(seams=seams)
    if state[HEAP] + new_pairs > len(arrays.heap):
        heap = _with_room(arrays.heap[: state[HEAP]], int(state[HEAP]) + new_pairs)
        arrays = arrays._replace(heap=heap)
    if 2 * (state[PAIRS] + new_pairs) > len(arrays.rows):
        pairs = _used(arrays.rows)
        pairs = pairs[pairs[:, COUNT] > 0]
        state[PAIRS] = len(pairs)
        arrays = arrays._replace(rows=_rows(pairs, _rows_for(len(pairs) + new_pairs)))
    return arrays


def _rows_for(n_pairs: int) -> int:
    """Return a number of rows, a power of two, for `n_pairs` pairs and as many again."""
    return max(_FEWEST_ROWS, 1 << (4 * n_pairs).bit_length())


def _empty_rows(n_rows: int) -> np.ndarray:
    rows = np.zeros((n_rows, 4), np.int64)
    rows[:, KEY] = -1
    return rows


def _used(rows: np.ndarray) -> np.ndarray:
    return rows[rows[:, KEY] >= 0]


def _rows(pairs: np.ndarray, n_rows: int) -> np.ndarray:
    """Return a table of `n_rows` rows, a power of two, that holds the `pairs`."""
    rows = _empty_rows(n_rows)
    mixed = pairs[:, KEY].astype(np.uint64) * GOLDEN
    rows[place(mixed ^ (mixed >> np.uint64(32)), n_rows)] = pairs
    return rows


def _with_room(array: np.ndarray, more: int) -> np.ndarray:
    """Return a copy of `array` with `more` items behind its own."""
    larger = np.empty((len(array) + more, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger
