"""Blocks and a prefix index, the slow and obvious way: what the real ones are held against."""

from collections import Counter
from collections.abc import Sequence

from mlxgpt.infer.paged.blocks import BlockTable, Copy, OutOfBlocks


class NaiveBlocks:
    """A list of free blocks and a count of holders. Hands out the block that was free longest, so
    that tables scatter."""

    def __init__(self, block_size: int, capacity: int) -> None:
        self.block_size = block_size
        self.capacity = capacity
        self.unused = list(range(capacity))
        self.holders: Counter[int] = Counter()

    @property
    def segments(self) -> list[int]:
        return [self.capacity]

    @property
    def available(self) -> int:
        return len(self.unused)

    def hold(self, block: int) -> None:
        assert self.holders[block] > 0
        self.holders[block] += 1

    def let_go(self, block: int) -> bool:
        """Return whether it is free now."""
        assert self.holders[block] > 0, "freed twice"
        self.holders[block] -= 1
        if self.holders[block] == 0:
            del self.holders[block]
            self.unused.append(block)
            return True
        return False

    def take(self) -> int:
        block = self.unused.pop(0)
        self.holders[block] = 1
        return block

    def append(self, table: BlockTable, count: int, expected: int = 0) -> list[Copy]:
        size = self.block_size
        held = table.length - table.dropped
        assert len(table.blocks) == -(-held // size)
        shared = held % size != 0 and self.holders[table.blocks[-1]] > 1
        new = -(-(held + count) // size) - len(table.blocks)
        if count and new + shared > len(self.unused):
            raise OutOfBlocks
        copies = []
        if count and shared:
            target = self.take()
            copies.append(Copy(table.blocks[-1], target, held % size))
            self.let_go(table.blocks[-1])
            table.blocks[-1] = target
        table.blocks += [self.take() for _ in range(new)]
        table.length += count
        return copies

    def truncate(self, table: BlockTable, length: int) -> None:
        assert table.dropped <= length <= table.length
        table.length = length
        while len(table.blocks) > -(-(length - table.dropped) // self.block_size):
            self.let_go(table.blocks.pop())

    def drop_front(self, table: BlockTable, before: int) -> None:
        assert before <= table.length
        while table.dropped + self.block_size <= before:
            self.let_go(table.blocks.pop(0))
            table.dropped += self.block_size

    def fork(self, table: BlockTable) -> BlockTable:
        for block in table.blocks:
            self.hold(block)
        return BlockTable(list(table.blocks), table.length, table.dropped)

    def free(self, table: BlockTable) -> None:
        for block in table.blocks:
            self.let_go(block)
        table.blocks, table.length, table.dropped = [], 0, 0

    def slots(self, table: BlockTable, begin: int, end: int) -> list[int]:
        assert table.dropped <= begin <= end <= table.length
        size = self.block_size
        return [
            table.blocks[(i - table.dropped) // size] * size + i % size for i in range(begin, end)
        ]

    def compact(self, table: BlockTable) -> list[Copy]:
        """Move into the lowest blocks that are free, and lie before; never more than that."""
        copies = []
        for place, block in enumerate(table.blocks):
            lowest = min(self.unused, default=block)
            if self.holders[block] == 1 and lowest < block:
                self.unused.remove(lowest)
                self.holders[lowest] = 1
                self.let_go(block)
                table.blocks[place] = lowest
                copies.append(Copy(block, lowest, self.block_size))
        return copies

    def tidy(self, tables: Sequence[BlockTable], max_blocks: int) -> list[Copy]:
        copies = []
        for table in tables:
            if len(copies) + len(table.blocks) <= max_blocks:
                copies += self.compact(table)
        return copies


class NaivePrefixIndex:
    """A dictionary from all tokens up to the end of a block to that block."""

    def __init__(self, blocks: NaiveBlocks) -> None:
        self.blocks = blocks
        self.known: dict[tuple[int, ...], int] = {}  # the least recently used first

    @property
    def evictable(self) -> int:
        return sum(self.blocks.holders[block] == 1 for block in self.known.values())

    def match(self, token_ids: Sequence[int]) -> BlockTable:
        size = self.blocks.block_size
        table = BlockTable()
        for end in range(size, len(token_ids), size):
            key = tuple(token_ids[:end])
            if key not in self.known:
                break
            self.known[key] = self.known.pop(key)
            table.blocks.append(self.known[key])
            table.length = end
        for block in table.blocks:
            self.blocks.hold(block)
        return table

    def insert(self, token_ids: Sequence[int], table: BlockTable) -> None:
        size = self.blocks.block_size
        for end in range(size, min(len(token_ids), table.length) + 1, size):
            key = tuple(token_ids[:end])
            if key in self.known:
                self.known[key] = self.known.pop(key)
            elif end <= table.dropped or (end > size and key[:-size] not in self.known):
                break
            else:
                block = table.blocks[(end - table.dropped) // size - 1]
                self.blocks.hold(block)
                self.known[key] = block

    def evict(self, count: int) -> int:
        """An entry goes with all that follow it, which may be in use."""
        before = self.blocks.available
        while self.blocks.available - before < count:
            for key, block in self.known.items():
                after = [k for k in self.known if len(k) > len(key) and k[: len(key)] == key]
                alone = [self.blocks.holders[self.known[k]] == 1 for k in after]
                if self.blocks.holders[block] == 1 and not any(alone):
                    for k in [key, *after]:
                        self.blocks.let_go(self.known.pop(k))
                    break
            else:
                break
        return self.blocks.available - before

    def clear(self) -> None:
        for block in self.known.values():
            self.blocks.let_go(block)
        self.known = {}
