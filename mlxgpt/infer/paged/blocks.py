"""Which block of a pool holds which tokens: block tables, reference counts, copy-on-write. No MLX.

A pool is cut into blocks of `block_size` slots, numbered from 0 over all its segments. A text's
block table lists its blocks in order; a block may stand in several tables, and is copied before one
of them writes to it. (Kwon et al., "Efficient memory management for large language model serving
with PagedAttention", 2023, section 4.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from mlxgpt.infer.paged.holders import Holders
from mlxgpt.infer.paged.placement import Placement, Reserve, Run
from mlxgpt.infer.paged.tidying import Lying, Move, moves


class OutOfBlocks(Exception):
    """There are not enough free blocks. Nothing was changed."""


@dataclass(eq=False)
class BlockTable:
    """Where the keys and values of one text lie."""

    blocks: list[int] = field(default_factory=list)
    """Block ids, in order; the first holds token `dropped`."""
    length: int = 0
    """Number of tokens of the text that have been placed, those dropped included."""
    dropped: int = 0
    """Tokens at the beginning whose blocks were given back; a multiple of the block size."""


@dataclass(frozen=True)
class Copy:
    """The first `count` slots of block `source` have to be copied to block `target`."""

    source: int
    target: int
    count: int


class Keeper(Reserve, Protocol):
    """Holds blocks beside the tables, and is told what becomes of them."""

    def moved(self, source: int, target: int) -> None:
        """What block `source` holds will be in `target`; so is the keeper's reference."""

    def shortened(self, table: BlockTable, length: int) -> None:
        """The tokens of a table from `length` on are forgotten."""


class Blocks:
    """All blocks of a pool, free and in use.

    `capacity` blocks at most; `segments` is the size of the parts in which the pool has to exist so
    far, which become more as blocks are needed. A text's blocks are kept next to each other where
    possible, at aligned places, because attention reads stretches of neighbours as they lie.

    No operation costs more in a larger pool, but for the logarithm of its size.
    """

    def __init__(self, block_size: int, capacity: int) -> None:
        assert block_size >= 1
        assert capacity >= 1
        self.block_size, self.capacity = block_size, capacity
        self._placement = Placement(capacity)
        self._holders = Holders()
        self._keeper: Keeper | None = None
        self._runs: dict[BlockTable, Run] = {}
        """Where the next blocks of a table will lie."""

    @property
    def segments(self) -> Sequence[int]:
        """Number of blocks of each segment; block ids count through them."""
        return self._placement.segments

    @property
    def available(self) -> int:
        """Blocks that are free, in segments that exist or that may still be added."""
        return self._placement.available

    @property
    def kept_alone(self) -> int:
        """Blocks that stand in no table, but are kept."""
        return self._holders.kept_alone

    def refs(self, block: int) -> int:
        """Return how many tables hold a block, and one more if it is kept beside them."""
        return self._holders.refs(block)

    def in_tables(self, block: int) -> int:
        """Return how many tables hold a block."""
        return self._holders.in_tables(block)

    def append(self, table: BlockTable, count: int, expected: int = 0) -> list[Copy]:
        """Place `count` more tokens at the end of `table`; return what the pool must copy first.

        `expected` is how long the text may become, in tokens; room for it is kept free beside it as
        long as nobody else needs it. Where there is no such room the keeper may have to evict some
        blocks, even though others are free. Raises `OutOfBlocks`, and then nothing has changed.
        """
        assert count >= 0
        size, blocks = self.block_size, table.blocks
        partly = (table.length - table.dropped) % size
        copied = bool(count and partly and self.refs(blocks[-1]) > 1)
        new = -(-(table.length + count - table.dropped) // size) - len(blocks)
        need = new + copied
        if need > self.available:
            raise OutOfBlocks(f"{need} blocks are needed, {self.available} are available")
        copies = []
        if need:
            last = blocks[-1] if blocks else None
            run = self._runs.get(table)
            ahead = self._ahead(table, need, expected)
            placed, self._runs[table] = self._placement.place(run, last, need, ahead)
            self._holders.first(placed)
            if copied:
                source = blocks.pop()
                self._holders.leave([source])  # others hold it
                copies.append(Copy(source, placed[0], partly))
            blocks += placed
        table.length += count
        return copies

    def truncate(self, table: BlockTable, length: int) -> None:
        """Forget the tokens from `length` on; blocks that hold none any more are given back."""
        assert table.dropped <= length <= table.length
        left = -(-(length - table.dropped) // self.block_size)
        run, free = self._runs.get(table), []
        for block in self._holders.leave(reversed(table.blocks[left:])):
            if run is None or not self._placement.take_back(run, block):
                free.append(block)
        self._placement.give(free[::-1])
        del table.blocks[left:]
        table.length = length
        if self._keeper is not None:
            self._keeper.shortened(table, length)

    def drop_front(self, table: BlockTable, before: int) -> None:
        """Give back the blocks all of whose tokens come before token `before`."""
        assert before <= table.length
        gone = max(before - table.dropped, 0) // self.block_size
        self._placement.give(self._holders.leave(table.blocks[:gone]))
        del table.blocks[:gone]
        table.dropped += gone * self.block_size

    def fork(self, table: BlockTable) -> BlockTable:
        """Return a second table with the same tokens; the blocks are shared."""
        self._holders.share(table.blocks)
        return BlockTable(list(table.blocks), table.length, table.dropped)

    def free(self, table: BlockTable) -> None:
        """Give back all blocks of a table, which is empty afterwards."""
        if (run := self._runs.pop(table, None)) is not None:
            self._placement.close(run)
        self._placement.give(self._holders.leave(table.blocks))
        table.blocks, table.length, table.dropped = [], 0, 0
        if self._keeper is not None:
            self._keeper.shortened(table, 0)

    def slots(self, table: BlockTable, begin: int, end: int) -> list[int]:
        """Return the slot (block id * block_size + place) of each token in [begin, end)."""
        assert table.dropped <= begin <= end <= table.length
        size = self.block_size
        places = (divmod(at - table.dropped, size) for at in range(begin, end))
        return [table.blocks[block] * size + place for block, place in places]

    def stretches(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Return (first block, number) of each longest run of neighbours, in order; no run crosses
        the end of a segment."""
        found: list[tuple[int, int]] = []
        end = 0
        for block in blocks:
            if found and block == found[-1][0] + found[-1][1] < end:
                found[-1] = (found[-1][0], found[-1][1] + 1)
            else:
                found.append((block, 1))
                end = self._placement.free.segment_of(block)[1]
        return found

    def compact(self, table: BlockTable) -> list[Copy]:
        """Move a text that lies in many places to one, if there is a place; return what to copy.

        Only blocks that no other table holds are moved. The old blocks are free afterwards, so the
        copies must be made before anything else is placed.
        """
        return self._move([table], len(table.blocks), lonely=False)

    def tidy(self, tables: Sequence[BlockTable], max_blocks: int) -> list[Copy]:
        """Move up to `max_blocks` blocks so that attention over all `tables` finds less to do.

        Texts in many stretches come first, then texts that lie alone. Returns what to copy, before
        anything else is placed: no target is a source, so the order does not matter. Empty if
        nothing is to be gained, or no place is free.
        """
        return self._move(tables, max_blocks, lonely=True)

    def keep_for(self, keeper: Keeper) -> None:
        """Let a keeper hold blocks beside the tables; there may be only one."""
        assert self._keeper is None, "the blocks of a pool have one index"
        self._keeper = keeper
        self._placement.reserve = keeper

    def keep(self, block: int) -> None:
        """Hold a block of a table until `forget`, even if it stands in no table any more."""
        self._holders.keep(block)

    def forget(self, block: int) -> bool:
        """Hold a block no longer; return whether it is free now."""
        free = self._holders.forget(block)
        if free:
            self._placement.give([block])
        return free

    def share(self, blocks: Sequence[int]) -> BlockTable:
        """Return a table of full blocks, all of which are in use."""
        self._holders.share(blocks)
        return BlockTable(list(blocks), len(blocks) * self.block_size)

    def _ahead(self, table: BlockTable, need: int, expected: int) -> int:
        """Return for how many blocks there should be room behind a table."""
        held = len(table.blocks)
        left = -(-(expected - table.dropped) // self.block_size) - held
        if left < need:  # longer than was thought: twice as much each time
            return max(need, held)
        return max(need, min(left, held)) if table.dropped else left

    def _move(self, tables: Sequence[BlockTable], most: int, *, lonely: bool) -> list[Copy]:
        texts = [self._lying(table) for table in tables]
        copies, left = [], []
        for move in moves(texts, self._placement.free, most, lonely=lonely):
            copies += self._carry_out(tables[move.text], move)
            left += [copy.source for copy in copies[-move.count :]]
        self._placement.give(left)  # only now, so that none of them became a target
        return copies

    def _lying(self, table: BlockTable) -> Lying:
        """Describe where the blocks at the end of a table lie that no other table holds."""
        private = table.blocks[self._holders.private_from(table.blocks) :]
        run = self._runs.get(table)
        return Lying(self.stretches(private), run.unfilled if run else 0)

    def _carry_out(self, table: BlockTable, move: Move) -> list[Copy]:
        """Put the last blocks of a table to where `move` says; the sources are left in use."""
        last = (table.length - table.dropped - 1) % self.block_size + 1
        sources = table.blocks[-move.count :]
        targets = range(move.start, move.start + move.count)
        copies = []
        for source, target in zip(sources, targets, strict=True):
            count = self.block_size if source != sources[-1] else last
            if self._holders.move(source, target):
                count = self.block_size  # the table may have been shortened, what is kept was not
                assert self._keeper is not None
                self._keeper.moved(source, target)
            copies.append(Copy(source, target, count))
        table.blocks[-move.count :] = targets
        if (run := self._runs.get(table)) is not None:
            self._placement.close(run)
        self._runs[table] = self._placement.occupy(move.start, move.count, move.size)
        return copies
