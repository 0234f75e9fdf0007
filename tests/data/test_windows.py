"""Training batches are a function of seed, step and rank, and an epoch is fair to every token."""

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.data import TokenFile, WindowBatches
from mlxgpt.errors import ConfigError, DataError


def token_file(count: int, fingerprint: str = "x") -> TokenFile:
    """Return a file in which the id tells the position."""
    return TokenFile(np.arange(count, dtype=np.uint16), 65536, 1, count, fingerprint)


SIZES = st.tuples(st.integers(2, 60), st.integers(1, 12), st.integers(1, 7)).filter(
    lambda s: s[0] > s[1]
)


def epoch_targets(batches: WindowBatches, epoch: int) -> list[int]:
    """Return the targets of the windows of one epoch, from batches of one row."""
    first = epoch * batches.windows_per_epoch
    return [
        int(t)
        for i in range(first, first + batches.windows_per_epoch)
        for t in batches.batch(i).targets[0]
    ]


@given(SIZES, st.integers(0, 3), st.integers(0, 4))
def test_b24_each_token_is_a_target_at_most_once_an_epoch(
    sizes: tuple[int, int, int], seed: int, epoch: int
) -> None:
    count, context, _ = sizes
    batches = WindowBatches(token_file(count), 1, context, seed)
    seen = Counter(epoch_targets(batches, epoch))
    assert set(seen.values()) == {1}
    assert count - len(seen) < context


@given(SIZES, st.integers(0, 20))
def test_targets_are_the_inputs_one_further_on_the_ring(
    sizes: tuple[int, int, int], step: int
) -> None:
    count, context, rows = sizes
    batch = WindowBatches(token_file(count), rows, context, 0).batch(step)
    assert batch.shape == (rows, context)
    assert np.array_equal(batch.targets, (batch.input_ids + 1) % count)
    assert np.array_equal(batch.input_ids[:, 1:], batch.targets[:, :-1])
    assert batch.loss_weights.sum() == rows * context
    assert batch.segment_ids is None


@given(SIZES, st.integers(1, 4), st.integers(0, 15))
def test_ranks_together_see_what_one_would(
    sizes: tuple[int, int, int], world: int, step: int
) -> None:
    count, context, rows = sizes
    file = token_file(count)
    parts = [
        WindowBatches(file, rows, context, 5, rank, world).batch(step) for rank in range(world)
    ]
    whole = WindowBatches(file, rows * world, context, 5).batch(step)
    assert np.array_equal(np.concatenate([p.input_ids for p in parts]), whole.input_ids)
    assert np.array_equal(np.concatenate([p.targets for p in parts]), whole.targets)


@given(SIZES, st.integers(0, 15))
def test_the_sequence_of_windows_does_not_depend_on_the_rows_of_a_batch(
    sizes: tuple[int, int, int], step: int
) -> None:
    count, context, rows = sizes
    single = WindowBatches(token_file(count), 1, context, 5)
    batch = WindowBatches(token_file(count), rows, context, 5).batch(step)
    for row in range(rows):
        expected = single.batch(step * rows + row).input_ids[0]
        assert np.array_equal(batch.input_ids[row], expected)


@given(st.permutations(range(12)))
def test_a_batch_is_the_same_in_any_order(order: list[int]) -> None:
    def make() -> WindowBatches:
        return WindowBatches(token_file(40), 3, 5, 1)  # 8 windows an epoch: many straddle

    batches = make()
    for step in order:
        assert np.array_equal(batches.batch(step).input_ids, make().batch(step).input_ids)


def test_b26_a_new_process_goes_on_exactly() -> None:
    code = (
        "import json, numpy as np; from mlxgpt.data import TokenFile, WindowBatches; "
        "file = TokenFile(np.arange(1000, dtype=np.uint16), 65536, 1, 1000, 'x');"
        "b = WindowBatches(file, 4, 16, 7);"
        "print(json.dumps([b.batch(s).input_ids.tolist() for s in range(17, 40)]))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    batches = WindowBatches(token_file(1000), 4, 16, 7)
    assert json.loads(output) == [batches.batch(s).input_ids.tolist() for s in range(17, 40)]


def test_b26_what_the_sequence_depends_on_is_told_apart() -> None:
    def identity(**changes: object) -> str:
        arguments = {
            "token_file": token_file(99),
            "batch_size": 4,
            "context": 8,
            "seed": 0,
        } | changes
        return json.dumps(WindowBatches(**arguments).identity)

    same = identity()
    assert identity(batch_size=2, rank=1, world_size=2) == same
    for change in (
        {"token_file": token_file(99, "other")},
        {"batch_size": 5},
        {"context": 9},
        {"seed": 1},
    ):
        assert identity(**change) != same


def test_b25_epochs_follow_one_another_without_an_end() -> None:
    batches = WindowBatches(token_file(5 * 8), 2, 8, 0)
    assert batches.windows_per_epoch == 5
    rows = [tuple(row) for step in range(12) for row in batches.batch(step).input_ids.tolist()]
    assert len(rows) == 24
    assert batches.epoch(0) == 0.0
    assert batches.epoch(5) == 2.0
    assert batches.epoch(12) == pytest.approx(4.8)


def test_a_batch_larger_than_the_corpus_repeats_it() -> None:
    batch = WindowBatches(token_file(10), 100, 4, 0).batch(3)
    assert batch.shape == (100, 4)
    assert set(batch.targets.ravel()) == set(range(10))


def test_epochs_differ_in_order_and_in_borders() -> None:
    batches = WindowBatches(token_file(4000), 1, 10, 0)
    first, second = (
        [int(batches.batch(e * 400 + i).input_ids[0, 0]) for i in range(400)] for e in (0, 1)
    )
    assert sorted(first) != first
    # A turn of the ring alone would leave the steps from window to window as they were.
    steps, other_steps = ([(b - a) % 4000 for a, b in pairwise(s)] for s in (first, second))
    assert steps != other_steps
    borders = {s % 10 for s in first}, {s % 10 for s in second}
    assert all(len(b) == 1 for b in borders)
    offsets = {
        int(WindowBatches(token_file(4000), 1, 10, seed).batch(0).input_ids[0, 0]) % 10
        for seed in range(30)
    }
    assert len(offsets) > 5


def test_the_order_of_few_epochs_is_kept() -> None:
    batches = WindowBatches(token_file(100), 2, 10, 0)
    for step in range(200):
        batches.batch(step)
    assert batches._epoch_layout.cache_info().currsize <= 2
    assert batches._epoch_layout.cache_info().misses <= 41


def test_too_little_text_is_an_error_with_numbers() -> None:
    with pytest.raises(DataError, match=r"has 8 tokens, .* context 8 needs 9; .* smaller context"):
        WindowBatches(token_file(8), 1, 8, 0)
    assert WindowBatches(token_file(9), 1, 8, 0).windows_per_epoch == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"context": 0},
        {"rank": 2, "world_size": 2},
        {"rank": -1},
        {"rank": 0, "world_size": 0},
    ],
)
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        WindowBatches(token_file(99), **({"batch_size": 1, "context": 4, "seed": 0} | wrong))


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(ValueError, match="not negative"):
        WindowBatches(token_file(99), 1, 4, 0).batch(-1)
