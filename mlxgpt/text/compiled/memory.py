"""What one thread keeps between two calls of the encode kernel: buffers, and the words it has seen.

Everything here may be lost at any time without a change of the ids. Arrays begin small, double when
the kernel says that they are full, and have limits; at its limit a memory is emptied.
"""

from typing import final

import numpy as np

from mlxgpt.text.compiled.drop_draws import LONGEST_GAP
from mlxgpt.text.compiled.encode_kernel import (
    CHILDREN_BITS,
    ENTRIES,
    IDS,
    KEPT,
    LONG_WORD,
    LONGEST_KEPT,
    MOST_DROPS,
    NEED,
    NODE_IDS,
    NODES,
    NODES_FULL,
    Memory,
)
from mlxgpt.text.compiled.loads import PADDING
from mlxgpt.text.compiled.merge_kernel import new_scratch
from mlxgpt.text.compiled.word_table import SLOT, enlarged, new_table, rehash

_BUFFER = 1 << 20
"""Bytes of text and ids up to which the buffers are kept from call to call."""
_FIRST_SLOTS = 1 << 17
"""4 MB: what a thread takes at once where pages are huge, elsewhere as it is used."""
_SCRATCH = 1 << 12
WINDOW = 1 << 15
"""Bytes that are split before they are encoded: few enough for a near cache."""

# What one word may need at once, so that a memory that was just emptied is never too small.
_WORD_IDS = 2 * LONGEST_KEPT
_WORD_KEPT = 2 * (LONGEST_KEPT + PADDING)
_WORD_NODES = 2 * MOST_DROPS * LONGEST_GAP
_WORD_NODE_IDS = 2 * MOST_DROPS * LONGEST_KEPT


@final
class ThreadMemory:
    """The arrays of one thread."""

    def __init__(self, most_words: int) -> None:
        """Limit the words that are remembered; the nodes for dropout are four times as many."""
        most = 1 << max(4, (most_words - 1).bit_length())
        self._most_slots = 2 * most
        self._most_ids = max(_WORD_IDS, 8 * most)
        self._most_kept = max(_WORD_KEPT, 32 * most)
        self._most_nodes = max(_WORD_NODES, 4 * most)
        self._most_node_ids = max(_WORD_NODE_IDS, 8 * most)
        slots = min(self._most_slots, _FIRST_SLOTS)
        self.memory = Memory(
            new_table(slots),
            np.zeros(max(_WORD_IDS, slots), np.int32),
            np.zeros(max(_WORD_KEPT, 2 * slots), np.uint8),
            np.zeros(2 * _WORD_NODES, np.uint64),
            np.zeros(_WORD_NODE_IDS, np.int32),
            np.zeros(9, np.int64),
        )
        self._forget_drops()
        self.scratch = new_scratch(_SCRATCH)
        self._text = np.zeros(PADDING, np.uint8)
        self._out = np.zeros(0, np.int32)
        self.ends = np.empty(WINDOW + 2, np.int64)
        """The splitter's buffer."""

    def padded(self, data: bytes) -> np.ndarray:
        """Return `data` with padding, in a buffer that the next call may use again."""
        size = len(data) + PADDING
        text = self._text
        if text.size < size:
            text = np.empty(size * 5 // 4, np.uint8)
            if size <= _BUFFER:
                self._text = text
        text = text[:size]
        text[: len(data)] = np.frombuffer(data, np.uint8)
        text[len(data) :] = 0
        return text

    def room(self, size: int) -> np.ndarray:
        """Return room for `size` ids or more, in a buffer that the next call may use again."""
        if self._out.size >= size:
            return self._out
        out = np.empty(size * 5 // 4, np.int32)
        if size <= _BUFFER:
            self._out = out
        return out

    def enlarge(self, status: int) -> None:
        """Make room for what the kernel was about to do when it returned `status`."""
        if status == LONG_WORD:
            self.scratch = new_scratch(2 * int(self.memory.state[NEED]))
        elif status == NODES_FULL:
            self._enlarge_nodes()
        else:
            self._enlarge_table()

    def tidy(self) -> None:
        """Give back what only a very long word needed."""
        if self.scratch.ids.size > _BUFFER:
            self.scratch = new_scratch(_SCRATCH)

    def _enlarge_table(self) -> None:
        memory, state = self.memory, self.memory.state
        slots = memory.table.size // SLOT
        changes: dict[str, np.ndarray] = {}
        if 2 * (state[ENTRIES] + 1) > slots:
            if slots >= self._most_slots:
                return self._forget_all()
            changes["table"] = rehash(memory.table, 2 * slots)
        for name, used, need, most in (
            ("ids", IDS, LONGEST_KEPT, self._most_ids),
            ("kept", KEPT, LONGEST_KEPT + PADDING, self._most_kept),
        ):
            array = getattr(memory, name)
            if state[used] + need > array.size:
                if array.size >= most:
                    return self._forget_all()
                changes[name] = enlarged(array, min(most, 2 * array.size))
        self.memory = memory._replace(**changes)

    def _enlarge_nodes(self) -> None:
        memory, state = self.memory, self.memory.state
        changes: dict[str, np.ndarray] = {}
        for name, used, need, most in (
            ("nodes", 2 * state[NODES], 2 * LONGEST_GAP, 2 * self._most_nodes),
            ("node_ids", state[NODE_IDS], LONGEST_KEPT, self._most_node_ids),
        ):
            array = getattr(memory, name)
            if used + need > array.size:
                if array.size >= most:
                    return self._forget_drops()
                changes[name] = enlarged(array, min(most, 2 * array.size))
        self.memory = memory._replace(**changes)

    def _forget_all(self) -> None:
        self.memory.table[:] = 0
        self.memory.state[[ENTRIES, IDS, KEPT]] = 0
        self._forget_drops()

    def _forget_drops(self) -> None:
        self.memory.table[2::SLOT] &= ~CHILDREN_BITS
        self.memory.nodes[:] = 0
        self.memory.state[NODES] = 1  # 0 stands for a word itself
        self.memory.state[NODE_IDS] = 0
