"""Texts join, guess and leave at random, in very little room: the laws of the simulation hold."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from simulated_engine import IDS, Setting, Simulation

from mlxgpt.errors import ConfigError
from mlxgpt.infer.engine.step_copies import StepCopies
from mlxgpt.infer.paged.blocks import Copy

MOST_TEXTS = 12
HEADS = [[1 + (i * 7 + head * 11) % (IDS - 1) for i in range(24)] for head in range(3)]
"""Beginnings of which prompts have some in common."""


def join(simulation: Simulation, prompt: list[int], max_tokens: int, n: int) -> None:
    """Let a request in; what is too long is refused, and leaves nothing behind."""
    setting = simulation.setting
    room = setting.capacity * setting.block_size
    longest = len(prompt) + max_tokens
    if setting.window is not None:
        most = setting.window + setting.max_step_tokens + setting.block_size
        longest = min(longest, most)
    if longest <= room:
        simulation.join(prompt, max_tokens, n)
        return
    with pytest.raises(ConfigError, match=str(room)):
        simulation.join(prompt, max_tokens, n)
    simulation.events["refused"] += 1


def abort(simulation: Simulation, place: int) -> None:
    """Let one leave; with the first of a request, those that wait for its prompt."""
    texts = [t for t in simulation.texts if t not in simulation.waiting_choices]
    if texts:
        simulation.abort(texts[place % len(texts)])


class Joining(RuleBasedStateMachine):
    """What may happen to a scheduler, in any order; at the end, all texts are brought to theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation: Any = None

    @initialize(
        block_size=st.integers(1, 4),
        capacity=st.integers(4, 10),
        max_num_seqs=st.integers(1, 5),
        max_step_tokens=st.integers(1, 12),
        window=st.none() | st.integers(1, 8),
        sharing=st.booleans(),
        real=st.booleans(),
        right=st.sampled_from([0.0, 0.5, 1.0]),
        most_guesses=st.integers(0, 5),
        seed=st.integers(0, 9),
    )
    def begin(self, right: float, most_guesses: int, seed: int, **setting: Any) -> None:
        self.simulation = Simulation(
            Setting(**setting), random.Random(seed), right=right, most_guesses=most_guesses
        )

    @precondition(lambda self: len(self.simulation.texts) < MOST_TEXTS)
    @rule(
        head=st.sampled_from(HEADS),
        common=st.integers(0, 16),
        own=st.lists(st.integers(1, IDS - 1), max_size=4),
        max_tokens=st.integers(1, 20),
        n=st.sampled_from([1, 1, 1, 3]),
    )
    def join(self, head: list[int], common: int, own: list[int], max_tokens: int, n: int) -> None:
        join(self.simulation, head[:common] + own or [1], max_tokens, n)

    @rule(place=st.integers(0, MOST_TEXTS))
    def abort(self, place: int) -> None:
        abort(self.simulation, place)

    @rule()
    def renew(self) -> None:
        self.simulation.renew()

    @rule(times=st.integers(1, 6), abort_within=st.sampled_from([0.0, 0.0, 0.1]))
    def step(self, times: int, abort_within: float) -> None:
        for _ in range(times):
            self.simulation.step(abort_within)

    def teardown(self) -> None:
        if self.simulation is not None:
            self.simulation.drain()


TestJoining = Joining.TestCase
TestJoining.settings = settings(stateful_step_count=30)


def drive(rng: random.Random, operations: int, real: bool) -> Simulation:
    """Do so many random operations on one scheduler, then bring all texts to their end."""
    block_size, capacity = rng.choice([(1, 9), (2, 9), (3, 7), (4, 6), (4, 6), (4, 12)])
    simulation = Simulation(
        Setting(
            block_size,
            capacity,
            max_num_seqs=rng.choice([1, 2, 4, 6]),
            max_step_tokens=rng.choice([1, 3, 8, 8, 16]),
            window=rng.choice([None, None, 3, 7]),
            sharing=rng.random() < 0.6,
            real=real,
        ),
        rng,
        right=rng.choice([0.0, 0.5, 0.9]),
        most_guesses=rng.choice([0, 0, 3, 6]),
    )
    room = block_size * capacity
    for _ in range(operations):
        kind = rng.random()
        if kind < 0.25 and len(simulation.texts) < MOST_TEXTS:
            common = rng.choice([0, rng.randint(1, room * 2 // 3)])
            own = [rng.randrange(1, IDS) for _ in range(rng.randint(0 if common else 1, 6))]
            prompt = rng.choice(HEADS)[:common] + own
            max_tokens = rng.randint(1, max(2, room - len(prompt)))
            join(simulation, prompt, max_tokens, rng.choice([1, 1, 1, 3]))
        elif kind < 0.3:
            abort(simulation, rng.randrange(MOST_TEXTS))
        elif kind < 0.305:
            simulation.renew()
        else:
            simulation.step(abort_within=0.02)
    simulation.drain()
    return simulation


def drive_many(operations: int, real: bool) -> Counter[str]:
    """Do operations in portions of 200, each with another scheduler; count what happened."""
    seen: Counter[str] = Counter()
    for seed in range(operations // 200):
        simulation = drive(random.Random(seed), 200, real)
        seen += simulation.events
        seen["finished"] += len(simulation.finished)
        seen["shared"] += simulation.scheduler.shared_tokens
        seen["recomputed"] += simulation.scheduler.recomputed_tokens
    return seen


@pytest.mark.parametrize("real", [False, True], ids=["naive", "real"])
def test_some_operations(real: bool) -> None:
    drive_many(2_000, real)


@pytest.mark.slow
def test_a_hundred_thousand_operations() -> None:
    """And all that can happen has happened, many times."""
    seen = drive_many(100_000, real=True)
    rare = {"choices with guesses", "passed"}
    often = {
        *("finished", "shared", "recomputed", "preempted", "refused", "copies", "overshoot"),
        *("guesses taken", "guesses refused", "drafts cut", "choices that forked"),
        *("choices that queued", "aborted within"),
    }
    assert {what for what in often if seen[what] < 100} == set(), seen
    assert {what for what in rare if seen[what] < 10} == set(), seen


@pytest.mark.slow
def test_the_naive_blocks_agree() -> None:
    """They scatter texts more, so that more is copied."""
    seen = drive_many(20_000, real=False)
    assert seen["copies"] > 500
    assert seen["preempted"] > 100


def test_copies_in_turn_are_made_at_once() -> None:
    """Random copies, with blocks that are copied to and from again: the outcome is the same."""
    rng = random.Random(0)
    for _ in range(300):
        in_turn = dict.fromkeys(range(6), 0) | {i: i for i in range(6)}
        copies = StepCopies()
        for _ in range(rng.randint(0, 8)):
            source, target = rng.sample(range(6), 2)
            copies.add([Copy(source, target, 4)])
            in_turn[target] = in_turn[source]
        made = copies.at_once()
        assert len({c.target for c in made}) == len(made)
        at_once = {i: i for i in range(6)} | {c.target: c.source for c in made}
        assert at_once == in_turn


def test_a_copy_of_a_copy_has_the_tokens_of_the_last() -> None:
    copies = StepCopies()
    copies.add([Copy(1, 2, 4), Copy(2, 3, 2), Copy(5, 2, 1)])
    assert copies.at_once() == [Copy(1, 3, 2), Copy(5, 2, 1)]
