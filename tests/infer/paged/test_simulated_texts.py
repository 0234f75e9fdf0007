"""Random texts come, share, grow, shrink, move and go: nothing is lost, doubled or overwritten."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from simulated_texts import SimulatedTexts, Text, drive

POOLS = [(size, capacity) for size in (1, 3, 16) for capacity in (8, 21, 48)]
"""Tokens in a block, and blocks."""


def same(parent: int, tokens: tuple[int, ...]) -> int:
    """A hash that tells nothing apart."""
    return 7


def driven(seeds: int, operations: int) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in range(seeds):
        for size, capacity in POOLS:
            generator = np.random.Generator(np.random.Philox(key=1000 * seed + capacity + size))
            simulation = SimulatedTexts(size, capacity, same if seed % 3 == 2 else None)
            done += drive(simulation, generator, operations, crowded=seed % 2 == 0)
            done["operations"] += operations
            simulation.finish()
    return done


def test_5_000_operations() -> None:
    done = driven(2, 280)
    assert done["operations"] >= 5_000
    assert min(done[name] for name in ("admitted", "out of blocks", "evicted", "fork")) > 50
    assert done["compacted"] > 5
    assert done["tidied"] > 20


@pytest.mark.slow
def test_100_000_operations() -> None:
    done = driven(12, 930)
    assert done["operations"] >= 100_000
    assert min(done[name] for name in ("admitted", "out of blocks", "evicted", "fork")) > 1000
    assert done["compacted"] > 50
    assert done["tidied"] > 200


class Texts(RuleBasedStateMachine):
    """The same by hypothesis, which finds short ways to a fault."""

    simulation: SimulatedTexts

    @initialize(
        size=st.sampled_from([1, 3, 16]),
        capacity=st.integers(1, 14),
        chained_hash=st.sampled_from([None, same]),
    )
    def begin(
        self, size: int, capacity: int, chained_hash: Callable[[int, tuple[int, ...]], int] | None
    ) -> None:
        self.simulation = SimulatedTexts(size, capacity, chained_hash)

    def chosen(self, number: int) -> Text:
        return self.simulation.texts[number % len(self.simulation.texts)]

    def room(self) -> bool:
        return len(self.simulation.texts) < 5

    def some(self) -> bool:
        return bool(self.simulation.texts)

    @precondition(room)
    @rule(blocks=st.integers(0, 5), more=st.integers(0, 2), token=st.integers(0, 1))
    def admit(self, blocks: int, more: int, token: int) -> None:
        self.simulation.admit([token] * (blocks * self.simulation.size + more), 0)

    @precondition(some)
    @rule(
        number=st.integers(0, 9),
        tokens=st.lists(st.integers(0, 1), max_size=20),
        expected=st.sampled_from([0, 5, 50, 500]),
    )
    def append(self, number: int, tokens: list[int], expected: int) -> None:
        self.simulation.append(self.chosen(number), tokens, expected)

    @precondition(some)
    @rule(number=st.integers(0, 9), count=st.integers(0, 40))
    def truncate(self, number: int, count: int) -> None:
        text = self.chosen(number)
        self.simulation.truncate(text, max(text.table.dropped, text.table.length - count))

    @precondition(some)
    @rule(number=st.integers(0, 9), share=st.integers(0, 4))
    def drop_front(self, number: int, share: int) -> None:
        text = self.chosen(number)
        self.simulation.drop_front(text, text.table.length * share // 4)

    @precondition(lambda self: self.some() and self.room())
    @rule(number=st.integers(0, 9))
    def fork(self, number: int) -> None:
        self.simulation.fork(self.chosen(number))

    @precondition(some)
    @rule(number=st.integers(0, 9))
    def free(self, number: int) -> None:
        self.simulation.free(self.chosen(number))

    @precondition(some)
    @rule(number=st.integers(0, 9), without=st.integers(0, 20))
    def insert(self, number: int, without: int) -> None:
        text = self.chosen(number)
        self.simulation.insert(text, max(0, text.table.length - without))

    @rule(count=st.integers(0, 6))
    def evict(self, count: int) -> None:
        self.simulation.evict(count)

    @precondition(some)
    @rule(number=st.integers(0, 9))
    def compact(self, number: int) -> None:
        self.simulation.compact(self.chosen(number))

    @rule(most=st.integers(0, 14))
    def tidy(self, most: int) -> None:
        self.simulation.tidy(most)

    @invariant()
    def nothing_is_wrong(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.check()

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.finish()


TestTexts = Texts.TestCase
TestTexts.settings = settings(max_examples=70, stateful_step_count=40, deadline=None)
