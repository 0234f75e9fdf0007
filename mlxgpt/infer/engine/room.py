"""What texts hold of the pool: whether one fits, its place, what others may share. No MLX."""

from collections.abc import Iterable
from itertools import pairwise

from mlxgpt.config import require
from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.paged.blocks import Blocks, Copy, OutOfBlocks
from mlxgpt.infer.paged.prefix_index import PrefixIndex

_MOST_STRETCHES = 8
"""A text in more stretches than this is moved together: attention reads stretch by stretch."""
_MOST_TIDIED = 32
"""Blocks that `tidy` moves at once at most."""


class Room:
    """Places the tokens of texts in blocks, and remembers full blocks for texts to come.

    With a `window` (the widest of all layers) a text gives back the blocks that it has left behind,
    and never holds more than the window, the tokens of a step and a block more.
    """

    def __init__(
        self,
        blocks: Blocks,
        prefixes: PrefixIndex | None,
        *,
        window: int | None,
        max_step_tokens: int,
    ) -> None:
        self.shared_tokens = 0
        """Tokens of prompts that did not have to be computed, each counted once."""
        self.recomputed_tokens = 0
        """Tokens that were computed again, after a preemption or by a choice that had to wait."""
        self._blocks = blocks
        self._prefixes = prefixes
        self._size = blocks.block_size
        self._window = window
        self._at_once = None if window is None else window + max_step_tokens + self._size

    @property
    def sharing(self) -> bool:
        """Whether blocks are remembered for texts to come."""
        return self._prefixes is not None

    def check(self, text: Sequence) -> None:
        """Raise `ConfigError` if a text would not fit even if it were alone."""
        wanted = text.longest
        if self._at_once is not None:
            wanted = min(wanted, self._at_once)
        fits = self._blocks.capacity * self._size
        short_window = wanted < text.longest
        require(
            wanted <= fits,
            f"a prompt of {text.prompt_length} tokens and max_tokens {text.params.max_tokens} need "
            f"room for {wanted} tokens"
            + (f" at once (window {self._window})" if short_window else "")
            + f", but the cache has room for {fits}: give it more (kv_memory, --kv-memory), or "
            + ("lower max_step_tokens" if short_window else "ask for less (max_tokens, --tokens)"),
        )

    def has_for(self, text: Sequence, running: Iterable[Sequence]) -> bool:
        """Whether a text can be computed, and get one token, beside those that run.

        What these still need for all their tokens and one more is not counted as free.
        """
        free = self._blocks.available
        if self._prefixes is not None:
            free += self._prefixes.evictable
        return self._missing(text) + sum(map(self._missing, running)) <= free

    def recall(self, text: Sequence) -> None:
        """Give a text without blocks the known blocks of its beginning."""
        if self._prefixes is not None:
            text.table = self._prefixes.match(text.token_ids)
            text.indexed = text.table.length
            self._drop_front(text)

    def count_recalled(self, text: Sequence) -> None:
        """Count what a text that comes in did not have to compute."""
        known = text.table.length
        self.shared_tokens += max(0, min(known, text.prompt_length) - text.computed)
        text.computed = max(text.computed, known)

    def place(self, text: Sequence, count: int) -> list[Copy] | None:
        """Place `count` more tokens, at the cost of blocks that only the prefix index keeps.

        Returns what must be copied first; None if there is no room.
        """
        table, size = text.table, self._size
        expected = text.longest
        if self._window is not None and not table.dropped:
            expected = min(expected, self._window)
        while True:
            try:
                return self._blocks.append(table, count, expected)
            except OutOfBlocks:
                more = -(-(table.length + count) // size) - -(-table.length // size)
                short = max(1, more - self._blocks.available)
                if self._prefixes is None or not self._prefixes.evict(short):
                    return None

    def in_last_block(self, text: Sequence) -> int:
        """Return how many more tokens the last block of a text takes."""
        return -text.table.length % self._size

    def keep(self, text: Sequence, start: int) -> None:
        """Tokens from `start` on have been computed: forget those that the text does not have."""
        table = text.table
        known = min(table.length, len(text.token_ids) - 1)
        if known < table.length:
            self._blocks.truncate(table, known)
        self.recomputed_tokens += max(0, min(known, text.computed) - start)
        text.computed = max(text.computed, known)
        full = known // self._size * self._size
        if self._prefixes is not None and text.indexed is not None and full > text.indexed:
            self._prefixes.insert(text.token_ids[:full], table)
            text.indexed = full
        self._drop_front(text)

    def fork(self, text: Sequence, choice: Sequence) -> None:
        """Give a choice all its tokens but the last, in the blocks of a text that has them."""
        choice.table = self._blocks.fork(text.table)
        self._blocks.truncate(choice.table, len(choice.token_ids) - 1)
        choice.indexed = text.indexed

    def release(self, text: Sequence) -> None:
        """Take back all that a text has; the prefix index keeps what it knows."""
        self._blocks.free(text.table)

    def forget(self, texts: Iterable[Sequence]) -> None:
        """Share nothing any more that these texts have, or that the prefix index keeps."""
        for text in texts:
            text.indexed = None
        if self._prefixes is not None:
            self._prefixes.clear()

    def tidy(self, texts: Iterable[Sequence]) -> list[Copy]:
        """Move together what lies scattered; return the copies, due before tokens are placed."""
        tables = [text.table for text in texts]
        copies = []
        for table in tables:
            if sum(b != a + 1 for a, b in pairwise(table.blocks)) >= _MOST_STRETCHES:
                copies += self._blocks.compact(table)
        return copies + self._blocks.tidy(tables, _MOST_TIDIED)

    def _missing(self, text: Sequence) -> int:
        """Return how many more blocks a text needs for all its tokens and the next one."""
        wanted = -(-(len(text.token_ids) + 1) // self._size) - text.table.dropped // self._size
        if self._at_once is not None:
            wanted = min(wanted, -(-self._at_once // self._size))
        return max(0, wanted - len(text.table.blocks))

    def _drop_front(self, text: Sequence) -> None:
        """Give back the blocks that the next token of a text does not see."""
        if self._window is not None:
            self._blocks.drop_front(text.table, max(0, text.table.length + 1 - self._window))
