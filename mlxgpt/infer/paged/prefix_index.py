"""Full blocks that were computed before, found again by the tokens they hold. No MLX.

A block is known by its own tokens and the block before it (a chain of hashes), so the same tokens
after another beginning are another entry. Hashes only find candidates: the tokens are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from mlxgpt.infer.paged.blocks import Blocks, BlockTable


@dataclass(eq=False)
class _Entry:
    """One full block."""

    parent: "_Entry | None"
    tokens: tuple[int, ...]
    hash: int
    block: int
    depth: int
    """Number of blocks from the beginning to this one, itself included."""
    used: int = 0
    """When it was last asked for; the larger the later."""
    children: int = 0
    known: bool = True


def _chained(parent: int, tokens: tuple[int, ...]) -> int:
    return hash((parent, tokens))


class PrefixIndex:
    """Keeps blocks of finished and running texts until their place is needed (the least recently
    used first, and never a block before those that follow it)."""

    def __init__(
        self, blocks: Blocks, chained_hash: Callable[[int, tuple[int, ...]], int] = _chained
    ) -> None:
        """`chained_hash` makes a hash of that of the block before (0 if there is none) and the
        tokens; any function is right, a good one is fast."""
        self._blocks, self._hash = blocks, chained_hash
        self._by_hash: dict[int, list[_Entry]] = {}
        self._by_block: dict[int, _Entry] = {}
        self._reached: dict[BlockTable, _Entry] = {}
        """The last entry for which `insert` found or kept the tokens of a table."""
        self._clock = 0
        self._leaves: list[tuple[int, int, _Entry]] = []
        """A heap of (used, number, entry): all entries that nothing follows, and outdated ones."""
        self._pushed = 0
        blocks.keep_for(self)

    @property
    def count(self) -> int:
        """Number of blocks that are known."""
        return len(self._by_block)

    @property
    def evictable(self) -> int:
        """Number of blocks that are kept by this index alone."""
        return self._blocks.kept_alone

    def match(self, token_ids: Sequence[int]) -> BlockTable:
        """Return a table of the longest known beginning, of full blocks, that leaves at least one
        token to be computed; it shares those blocks. Empty if nothing is known."""
        self._clock += 1
        found: list[int] = []
        entry = None
        for tokens in self._cut(token_ids, 0, len(token_ids) - 1):
            following = self._find(entry, tokens)
            if following is None:
                break
            entry = following
            entry.used = self._clock
            found.append(entry.block)
        table = self._blocks.share(found)
        if entry is not None:
            self._reached[table] = entry
            self._note_leaf(entry)
        return table

    def insert(self, token_ids: Sequence[int], table: BlockTable) -> None:
        """Remember the full blocks of `table`, whose first tokens are `token_ids` (all that are
        given have been computed and will not be taken back).

        Where the same tokens are known already, the block that was first stays.
        """
        self._clock += 1
        entry = self._reached.get(table)
        if entry is not None and not entry.known:
            entry = None
        depth = entry.depth if entry else 0
        dropped = table.dropped // self._blocks.block_size
        for tokens in self._cut(token_ids, depth, min(len(token_ids), table.length)):
            following = self._find(entry, tokens)
            if following is None:
                if depth < dropped:
                    break  # the block is gone, so nothing after it can be found either
                following = self._add(entry, tokens, table.blocks[depth - dropped])
            entry = following
            entry.used = self._clock
            depth += 1
        if entry is not None:
            entry.used = self._clock
            self._reached[table] = entry
            self._note_leaf(entry)

    def evict(self, count: int) -> int:
        """Give back up to `count` blocks; return how many.

        All `evictable` ones can be given back: where only blocks follow them that are in tables,
        those leave the index too, and stay with their texts.
        """
        given = 0
        in_use: dict[_Entry, None] = {}
        while given < count and self.evictable:
            if not self._leaves:
                after = (e for e in in_use if self._after_evictable(e))
                entry = min(after, key=lambda e: e.used)
                del in_use[entry]
                self._remove(entry)
                continue
            used, _, entry = heappop(self._leaves)
            if used != entry.used or not self._is_leaf(entry):
                continue  # outdated
            if self._blocks.in_tables(entry.block):
                in_use[entry] = None
            else:
                given += self._remove(entry)
        for entry in in_use:
            self._note_leaf(entry)
        return given

    def clear(self) -> None:
        """Forget everything: the weights have changed."""
        for entry in self._by_block.values():
            entry.known = False
            self._blocks.forget(entry.block)
        self._by_hash, self._by_block, self._reached, self._leaves = {}, {}, {}, []

    def moved(self, source: int, target: int) -> None:
        """What block `source` holds will be in `target`."""
        entry = self._by_block.pop(source)
        entry.block = target
        self._by_block[target] = entry

    def shortened(self, table: BlockTable, length: int) -> None:
        """The tokens of a table from `length` on are forgotten."""
        entry = self._reached.get(table)
        if entry is not None and entry.depth * self._blocks.block_size > length:
            del self._reached[table]

    def _cut(self, token_ids: Sequence[int], depth: int, length: int) -> list[tuple[int, ...]]:
        """Return the tokens of each full block from `depth` on, in the first `length` tokens."""
        size = self._blocks.block_size
        return [
            tuple(token_ids[at : at + size]) for at in range(depth * size, length - size + 1, size)
        ]

    def _find(self, parent: _Entry | None, tokens: tuple[int, ...]) -> _Entry | None:
        key = self._hash(parent.hash if parent else 0, tokens)
        for entry in self._by_hash.get(key, ()):
            if entry.parent is parent and entry.tokens == tokens:
                return entry
        return None

    def _add(self, parent: _Entry | None, tokens: tuple[int, ...], block: int) -> _Entry:
        key = self._hash(parent.hash if parent else 0, tokens)
        entry = _Entry(parent, tokens, key, block, parent.depth + 1 if parent else 1)
        self._blocks.keep(block)
        self._by_hash.setdefault(key, []).append(entry)
        self._by_block[block] = entry
        if parent is not None:
            parent.children += 1
        return entry

    def _remove(self, entry: _Entry) -> bool:
        """Forget an entry that nothing follows; return whether its block is free now."""
        same = self._by_hash[entry.hash]
        same.remove(entry)
        if not same:
            del self._by_hash[entry.hash]
        del self._by_block[entry.block]
        entry.known = False
        parent = entry.parent
        if parent is not None:
            parent.children -= 1
            parent.used = max(parent.used, entry.used)
            self._note_leaf(parent)
        return self._blocks.forget(entry.block)

    def _after_evictable(self, entry: _Entry) -> bool:
        """Return whether a block before this one is kept by this index alone."""
        before = entry.parent
        while before is not None and self._blocks.in_tables(before.block):
            before = before.parent
        return before is not None

    def _is_leaf(self, entry: _Entry) -> bool:
        return entry.known and not entry.children

    def _note_leaf(self, entry: _Entry) -> None:
        """Let `evict` find an entry, if nothing follows it."""
        if not self._is_leaf(entry):
            return
        self._pushed += 1
        heappush(self._leaves, (entry.used, self._pushed, entry))
        if len(self._leaves) > 2 * len(self._by_block) + 16:
            leaves = (e for e in self._by_block.values() if self._is_leaf(e))
            self._leaves = [(e.used, i, e) for i, e in enumerate(leaves)]
            self._pushed = len(self._leaves)
            heapify(self._leaves)
