"""A pool of blocks with texts in it, whose slots hold tokens: what bookkeeping is held against."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from mlxgpt.infer.paged.blocks import Blocks, BlockTable, Copy, OutOfBlocks
from mlxgpt.infer.paged.prefix_index import PrefixIndex, _Entry

Prefix = tuple[int, ...]


@dataclass(eq=False)
class Text:
    """A text, and where it lies."""

    table: BlockTable = field(default_factory=BlockTable)
    tokens: list[int] = field(default_factory=list)


class SimulatedTexts:
    """Does what an engine does, writes tokens where keys and values would be, and checks it all."""

    def __init__(
        self,
        block_size: int,
        capacity: int,
        chained_hash: Callable[[int, tuple[int, ...]], int] | None = None,
    ) -> None:
        self.size, self.capacity = block_size, capacity
        self.blocks = Blocks(block_size, capacity)
        more = {} if chained_hash is None else {"chained_hash": chained_hash}
        self.index = PrefixIndex(self.blocks, **more)
        self.texts: list[Text] = []
        self.memory: dict[int, list[int | None]] = {}
        """What is in the slots of each block."""
        self.used: dict[Prefix, int] = {}
        """When each known beginning was last asked for."""
        self.clock = 0
        self.segments: list[int] = []
        self.held: Counter[int] = Counter()
        """Who held what when all was checked last."""

    # What can be done

    def admit(self, tokens: Sequence[int], expected: int = 0) -> Text | None:
        """Begin a text with what is known of it; None if there is no room."""
        text = Text()
        if tokens:
            text.table = self.index.match(tokens)
            text.tokens = list(tokens[: text.table.length])
            known = self.touch(tokens[:-1])
            assert text.table.length == known * self.size
        self.texts.append(text)
        if not self.append(text, tokens[text.table.length :], expected):
            self.free(text)
            return None
        return text

    def append(self, text: Text, tokens: Sequence[int], expected: int = 0) -> bool:
        """Write tokens at the end of a text; False if there is no room, and nothing has changed."""
        table, kept = text.table, text.table.length - text.table.dropped
        held = self.holders()
        shared = bool(tokens and kept % self.size and held[table.blocks[-1]] > 1)
        need = -(-(kept + len(tokens)) // self.size) - len(table.blocks) + shared
        if need > self.capacity - len(held):
            before = self.state()
            with pytest.raises(OutOfBlocks):
                self.blocks.append(table, len(tokens), expected)
            assert self.state() == before
            return False
        alone = self.alone(self.entries())
        copies = self.blocks.append(table, len(tokens), expected)
        while len(self.used) > self.index.count:  # something made way for a run
            self.forget_one(alone)
        assert len(copies) == shared
        self.copy(copies)
        new = self.blocks.slots(table, table.length - len(tokens), table.length)
        held = self.holders()
        for slot, token in zip(new, tokens, strict=True):
            block, place = divmod(slot, self.size)
            assert held[block] == 1, "others see what is written"
            self.memory.setdefault(block, [None] * self.size)[place] = token
        text.tokens += tokens
        return True

    def truncate(self, text: Text, length: int) -> None:
        self.blocks.truncate(text.table, length)
        del text.tokens[length:]

    def drop_front(self, text: Text, before: int) -> None:
        expected = max(text.table.dropped, before // self.size * self.size)
        self.blocks.drop_front(text.table, before)
        assert text.table.dropped == expected

    def fork(self, text: Text) -> Text:
        other = Text(self.blocks.fork(text.table), list(text.tokens))
        self.texts.append(other)
        return other

    def free(self, text: Text) -> None:
        self.blocks.free(text.table)
        assert (text.table.blocks, text.table.length, text.table.dropped) == ([], 0, 0)
        self.texts.remove(text)

    def compact(self, text: Text) -> int:
        private = self.private(text)
        before = self.blocks.stretches(private)
        copies = self.blocks.compact(text.table)
        self.copy(copies)
        if copies:
            assert len(copies) == len(private)
            assert len(before) > 1
            assert len(self.blocks.stretches(self.private(text))) == 1
        return len(copies)

    def tidy(self, max_blocks: int) -> int:
        copies = self.blocks.tidy([text.table for text in self.texts], max_blocks)
        assert len(copies) <= max_blocks
        self.copy(copies)
        return len(copies)

    def insert(self, text: Text, length: int) -> None:
        """Remember the first `length` tokens of a text."""
        reached = self.index._reached.get(text.table)
        depth = reached.depth if reached is not None and reached.known else 0
        known = self.touch(text.tokens[: max(length, depth * self.size)])
        if known * self.size >= text.table.dropped:
            for n in range(known + 1, length // self.size + 1):
                self.used[tuple(text.tokens[: n * self.size])] = self.clock
        self.index.insert(text.tokens[:length], text.table)

    def evict(self, count: int) -> int:
        given, alone = 0, self.alone(self.entries())
        assert self.index.evictable == len(alone)
        while given < count and alone:
            given += self.forget_one(alone)
        assert self.index.evict(count) == given
        return given

    def forget_one(self, alone: set[Prefix]) -> bool:
        """Forget what is to be forgotten first; return whether its block is free then."""
        leaves = [p for p in self.used if not followers(p, self.used, self.size)]
        free = [p for p in leaves if p in alone]
        if not free:
            free = [p for p in leaves if any(p[: len(a)] == a for a in alone)]
        gone = min(free, key=lambda p: self.used[p])
        used = self.used.pop(gone)
        if (before := gone[: -self.size]) in self.used:
            self.used[before] = max(self.used[before], used)
        given = gone in alone
        alone.discard(gone)
        return given

    def clear(self) -> None:
        self.index.clear()
        self.used.clear()

    # What is known about it

    def touch(self, tokens: Sequence[int]) -> int:
        """Return how many blocks of these are known; they were asked for now."""
        self.clock += 1
        known = 0
        while (known + 1) * self.size <= len(tokens):
            prefix = tuple(tokens[: (known + 1) * self.size])
            if prefix not in self.used:
                break
            self.used[prefix] = self.clock
            known += 1
        return known

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy one block after the other, in an order that should not matter."""
        targets = {copy.target for copy in copies}
        assert len(targets) == len(copies)
        assert targets.isdisjoint(copy.source for copy in copies)
        for copy in reversed(copies):
            assert 1 <= copy.count <= self.size
            empty = [None] * (self.size - copy.count)
            self.memory[copy.target] = self.memory[copy.source][: copy.count] + empty

    def private(self, text: Text) -> list[int]:
        """Return the blocks at the end of a text that no other text has."""
        others = {b for t in self.texts if t is not text for b in t.table.blocks}
        blocks = text.table.blocks
        first = next((i for i in range(len(blocks), 0, -1) if blocks[i - 1] in others), 0)
        return blocks[first:]

    def entries(self) -> dict[Prefix, int]:
        """Return the block of each beginning that the index knows."""

        prefixes: dict[_Entry | None, Prefix] = {None: ()}
        for entry in sorted(self.index._by_block.values(), key=lambda e: e.depth):
            prefixes[entry] = prefixes[entry.parent] + entry.tokens
            assert len(prefixes[entry]) == entry.depth * self.size
        found = {prefixes[entry]: block for block, entry in self.index._by_block.items()}
        assert len(found) == len(prefixes) - 1, "the same beginning twice"
        return found

    def alone(self, entries: dict[Prefix, int]) -> set[Prefix]:
        """Return the beginnings whose blocks no text has."""
        placed = {b for text in self.texts for b in text.table.blocks}
        return {prefix for prefix, block in entries.items() if block not in placed}

    def holders(self) -> Counter[int]:
        """Return how many hold each block that is in use."""
        held = Counter(b for text in self.texts for b in text.table.blocks)
        held.update(list(self.index._by_block))
        return held

    def free_blocks(self) -> list[int]:
        """Return the blocks that the pool says are free, or kept free behind a text."""
        placement = self.blocks._placement
        found = []
        for power, starts in enumerate(placement.free._pieces):
            for start in starts._members:
                first, end = placement.free.segment_of(start)
                assert (start - first) % (1 << power) == 0
                other = first + (start - first ^ 1 << power)
                assert other + (1 << power) > end or other not in starts, (
                    "two halves were not joined"
                )
                assert start + (1 << power) <= end
                found += range(start, start + (1 << power))
        assert len(found) == placement.free.count
        for run in self.blocks._runs.values():
            assert run.start <= run.next <= run.end
            if run.unfilled:
                assert run in placement._runs[run.unfilled.bit_length()]
                assert placement.free.segment_of(run.next)[1] >= run.end
                found += range(run.next, run.end)
        filed = sum(len(runs) for runs in placement._runs)
        assert filed == sum(run.unfilled > 0 for run in self.blocks._runs.values())
        return found

    def state(self) -> object:
        """Return all that a failed operation must leave as it was."""
        tables = [(list(t.table.blocks), t.table.length, t.table.dropped) for t in self.texts]
        runs = [(run.start, run.next, run.end) for run in self.blocks._runs.values()]
        segments = list(self.blocks.segments)
        return tables, runs, segments, sorted(self.free_blocks()), self.holders()

    def check(self) -> None:
        """Assert all that must be true after every operation."""
        held, free, segments = self.holders(), self.free_blocks(), list(self.blocks.segments)
        assert len(free) == len(set(free)), "free twice"
        assert held.keys().isdisjoint(free), "free, and in use"
        assert held.keys() | set(free) == set(range(sum(segments))), "lost"
        assert sum(segments) <= self.capacity
        assert len(segments) <= 8
        assert segments[: len(self.segments)] == self.segments, "a segment was changed"
        self.segments = segments
        assert self.blocks.available == self.capacity - len(held)
        assert all(self.blocks.refs(block) == count for block, count in held.items())
        assert not any(self.blocks.refs(block) for block in free)
        for block in self.held.keys() - held.keys():
            self.memory.pop(block, None)  # whoever still reads it is found out
        self.held = held
        for text in self.texts:
            table = text.table
            assert table.length == len(text.tokens)
            assert table.dropped % self.size == 0
            assert len(table.blocks) == -(-(table.length - table.dropped) // self.size)
            read = [token for block in table.blocks for token in self.memory[block]]
            assert read[: table.length - table.dropped] == text.tokens[table.dropped :]
        entries = self.entries()
        assert entries.keys() == self.used.keys()
        assert self.index.evictable == len(self.alone(entries))
        assert self.index.count == len(entries)
        for prefix, block in entries.items():
            assert tuple(self.memory[block]) == prefix[-self.size :]
        assert set(self.index._reached) <= {text.table for text in self.texts}

    def finish(self) -> None:
        """End everything; all blocks must be free then."""
        for text in list(self.texts):
            self.free(text)
        self.check()
        self.evict(self.capacity)
        self.check()
        assert self.blocks.available == self.capacity
        assert not self.blocks._runs
        assert not self.index._by_hash


def followers(prefix: Prefix, known: dict[Prefix, int], size: int) -> list[Prefix]:
    """Return the known beginnings that go on one block after `prefix`."""
    length = len(prefix) + size
    return [p for p in known if len(p) == length and p[: len(prefix)] == prefix]


def drive(
    simulation: SimulatedTexts,
    generator: np.random.Generator,
    operations: int,
    *,
    most_texts: int = 6,
    crowded: bool = True,
) -> Counter[str]:
    """Do random things; return how often each was done, and what came of it."""
    done: Counter[str] = Counter()
    size = simulation.size
    most = simulation.capacity * size // (1 if crowded else 3)
    names = ["admit", "append", "append", "append", "step", "truncate", "drop_front", "fork"]
    names += ["free", "insert", "insert", "evict", "compact", "tidy", "clear"]
    shares = np.array([2, 3, 3, 3, 4, 2, 1, 1.5, 1.5, 2, 2, 1, 1, 1, 0.05])
    chosen = generator.choice(len(names), operations, p=shares / shares.sum()).tolist()

    def number(low: int, high: int) -> int:
        return int(generator.integers(low, high + 1))

    def tokens(count: int) -> list[int]:
        return generator.integers(0, 2, count).tolist()

    def new(count: int) -> list[int]:
        """Half of all texts begin alike."""
        return ([0] * count if number(0, 1) else []) + tokens(count)

    for at in chosen:
        name, texts = names[at], simulation.texts
        text = texts[number(0, len(texts) - 1)] if texts else None
        if name == "admit" or text is None:
            name = "admit"
            if len(texts) < most_texts:
                admitted = simulation.admit(new(number(0, most // 4)), number(0, most))
                done["refused" if admitted is None else "admitted"] += 1
        elif name == "append":
            long = number(0, 9) == 0
            some = tokens(number(0, most // 3 if long else size + 1))
            if not simulation.append(text, some, number(0, most // 2)):
                done["out of blocks"] += 1
                simulation.evict(len(some) // size + 2) if number(0, 1) else simulation.free(text)
        elif name == "step":
            for each in texts:
                done["out of blocks"] += not simulation.append(each, tokens(1))
        elif name == "truncate":
            length = text.table.length
            least = max(text.table.dropped, length - number(1, 2 * size + 1))
            simulation.truncate(text, number(least, length))
        elif name == "drop_front":
            simulation.drop_front(text, number(0, text.table.length))
        elif name == "fork":
            if len(texts) < most_texts:
                simulation.fork(text)
        elif name == "free":
            simulation.free(text)
        elif name == "insert":
            simulation.insert(text, number(0, text.table.length))
        elif name == "evict":
            done["evicted"] += simulation.evict(number(0, 1 + simulation.capacity // 3))
        elif name == "compact":
            done["compacted"] += simulation.compact(text) > 0
        elif name == "tidy":
            done["tidied"] += simulation.tidy(number(0, simulation.capacity)) > 0
        else:
            simulation.clear()
        done[name] += 1
        simulation.check()
    return done
