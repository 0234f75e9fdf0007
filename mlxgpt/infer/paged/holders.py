"""Who holds which block: how many tables, and whether it is kept beside them. No MLX."""

from collections.abc import Iterable, Sequence


class Holders:
    """Reference counts of the blocks that are in use."""

    def __init__(self) -> None:
        self.kept_alone = 0
        """Blocks that are kept, but stand in no table."""
        self._tables: dict[int, int] = {}
        """In how many tables a block stands; those that are not here are in none."""
        self._kept: set[int] = set()

    def refs(self, block: int) -> int:
        """Return how many tables hold a block, and one more if it is kept beside them."""
        return self._tables.get(block, 0) + (block in self._kept)

    def in_tables(self, block: int) -> int:
        """Return how many tables hold a block."""
        return self._tables.get(block, 0)

    def first(self, blocks: Iterable[int]) -> None:
        """Put blocks that nobody holds into a table."""
        for block in blocks:
            assert not self.refs(block), "a block in use was placed again"
            self._tables[block] = 1

    def share(self, blocks: Iterable[int]) -> None:
        """Put blocks that somebody holds into one more table."""
        for block in blocks:
            count = self._tables.get(block, 0)
            if not count:
                assert block in self._kept, "a free block was shared"
                self.kept_alone -= 1
            self._tables[block] = count + 1

    def leave(self, blocks: Iterable[int]) -> list[int]:
        """Take blocks out of a table; return those that nobody holds any more."""
        free = []
        for block in blocks:
            count = self._tables[block] - 1
            if count:
                self._tables[block] = count
                continue
            del self._tables[block]
            if block in self._kept:
                self.kept_alone += 1
            else:
                free.append(block)
        return free

    def keep(self, block: int) -> None:
        """Hold a block of a table until `forget`, even if it stands in no table any more."""
        assert block in self._tables
        assert block not in self._kept
        self._kept.add(block)

    def forget(self, block: int) -> bool:
        """Keep a block no longer; return whether nobody holds it any more."""
        self._kept.remove(block)
        if block in self._tables:
            return False
        self.kept_alone -= 1
        return True

    def private_from(self, blocks: Sequence[int]) -> int:
        """Return from which of a table's blocks on they, to the last, stand in no other table."""
        first = len(blocks)
        while first and self._tables[blocks[first - 1]] == 1:
            first -= 1
        return first

    def move(self, source: int, target: int) -> bool:
        """Let `target` be held in place of `source`, which one table holds; return whether it is
        kept too."""
        assert self._tables[source] == 1
        del self._tables[source]
        self.first([target])
        if source not in self._kept:
            return False
        self._kept.remove(source)
        self._kept.add(target)
        return True
