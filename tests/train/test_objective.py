"""The loss of a batch: what is picked out, cut, or computed again changes nothing of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from mlxgpt import seeding
from mlxgpt.data import Batch
from mlxgpt.model import GPT, CausalAttend, SegmentAttend, cross_entropy
from mlxgpt.train.objective import Objective

Maker = Callable[..., GPT]
VOCAB, ROWS, LENGTH = 61, 4, 16
KEY = seeding.key(0, "test/objective")


def batch(weights: np.ndarray, packed: bool = False) -> Batch:
    draw = np.random.Generator(np.random.Philox(key=4))
    ids = draw.integers(0, VOCAB, (2, *weights.shape), dtype=np.int32)
    numbers = np.sort(draw.integers(0, 3, weights.shape, dtype=np.int32)) if packed else None
    return Batch(ids[0], ids[1], weights.astype(np.float32), numbers)


def some(share: float, seed: int = 5) -> np.ndarray:
    """Weights that are not 0, nor all the same, in a share of the places."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    return (0.5 + draw.random((ROWS, LENGTH))) * (draw.random((ROWS, LENGTH)) < share)


def plain(model: GPT, rows: Batch) -> mx.array:
    """The loss with nothing left out: all logits, all places."""
    segments = rows.segment_ids
    attend = CausalAttend() if segments is None else SegmentAttend(mx.array(segments))
    nll = cross_entropy(model(mx.array(rows.input_ids), attend), mx.array(rows.targets))
    return (nll * mx.array(rows.loss_weights)).sum()


def gradients(model: GPT, nll: Callable[[], mx.array]) -> tuple[mx.array, dict[str, mx.array]]:
    def loss(trained: dict) -> mx.array:
        model.update(trained)
        return nll()

    start = model.trainable_parameters()
    value, found = mx.value_and_grad(loss)(start)
    model.update(start)
    return value, dict(tree_flatten(found))


OBJECTIVES = {
    "as it is": Objective(),
    "by chunks": Objective(logits_chunk=5),
    "a token at a time": Objective(logits_chunk=1),
    "layers again": Objective(checkpoint_layers=True),
    "both": Objective(logits_chunk=7, checkpoint_layers=True),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 0.9, 1.1])
@pytest.mark.parametrize("packed", [False, True], ids=["one text", "packed"])
@pytest.mark.parametrize("key", [None, KEY], ids=["evaluated", "trained"])
def test_loss_and_gradients_are_those_of_all_places(
    random_gpt: Maker, objective: Objective, share: float, packed: bool, key: Any
) -> None:
    model, rows = random_gpt(), batch(some(share), packed)
    value, expected = gradients(model, lambda: plain(model, rows))
    inputs = objective.inputs(rows)
    assert ("places" in inputs) == (share < 0.7)
    again, found = gradients(model, lambda: objective.nll(model, inputs, key))
    assert again.item() == pytest.approx(value.item(), rel=1e-6)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        most = float(mx.abs(gradient).max().item())
        assert mx.abs(found[name] - gradient).max().item() <= 3e-6 * most, name


@given(st.integers(1, 5), st.integers(1, 40), st.floats(0, 1), st.integers(0, 99))
def test_no_weighted_target_is_lost_and_none_counts_twice(
    rows: int, length: int, share: float, seed: int
) -> None:
    draw = np.random.Generator(np.random.Philox(key=seed))
    weights = (draw.random((rows, length)) < share) * (0.5 + draw.random((rows, length)))
    whole = batch(weights)
    inputs = {name: np.array(value) for name, value in Objective().inputs(whole).items()}
    places = inputs.get("places", np.arange(weights.size)).reshape(-1)
    counted = np.zeros(weights.size, np.float32)
    np.add.at(counted, places, inputs["loss_weights"].reshape(-1))
    assert np.array_equal(counted, whole.loss_weights.reshape(-1))
    assert np.array_equal(inputs["targets"].reshape(-1), whole.targets.reshape(-1)[places])
    assert len(places) <= weights.size
    assert len(places) >= np.count_nonzero(weights)


def test_batches_of_one_shape_have_few_numbers_of_places() -> None:
    numbers = set()
    for count in range(ROWS * LENGTH + 1):
        weights = np.zeros(ROWS * LENGTH)
        weights[:count] = 1
        numbers.add(Objective().inputs(batch(weights.reshape(ROWS, LENGTH)))["targets"].size)
    assert len(numbers) <= 8


def test_without_a_target_the_loss_is_0_and_so_are_the_gradients(random_gpt: Maker) -> None:
    model, objective = random_gpt(), Objective(logits_chunk=3)
    inputs = objective.inputs(batch(np.zeros((ROWS, LENGTH))))
    value, found = gradients(model, lambda: objective.nll(model, inputs, KEY))
    assert value.item() == 0
    assert all((gradient == 0).all() for gradient in found.values())


def test_the_batch_is_left_alone() -> None:
    rows = batch(some(0.3))
    before = rows.loss_weights.copy(), rows.targets.copy()
    Objective().inputs(rows)
    assert np.array_equal(rows.loss_weights, before[0])
    assert np.array_equal(rows.targets, before[1])


def test_training_on_every_place_computes_what_it_always_did(random_gpt: Maker) -> None:
    """To the bit: no place is picked, nothing is cut."""
    model, rows = random_gpt(), batch(np.ones((ROWS, LENGTH)))
    inputs = Objective().inputs(rows)
    assert set(inputs) == {"input_ids", "targets", "loss_weights"}
    value, expected = gradients(model, lambda: plain(model, rows))
    again, found = gradients(model, lambda: Objective().nll(model, inputs, KEY))
    assert value.item() == again.item()
    assert all(mx.array_equal(found[name], gradient) for name, gradient in expected.items())


@pytest.mark.parametrize("chunk", [None, 5])
def test_dropout_needs_a_key_and_is_the_same_in_any_way(
    random_gpt: Maker, chunk: int | None
) -> None:
    model, rows = random_gpt(), batch(some(0.5))
    dropped = Objective(dropout=0.3, logits_chunk=chunk)
    inputs = dropped.inputs(rows)
    without = Objective().nll(model, inputs, KEY).item()
    assert dropped.nll(model, inputs, None).item() == pytest.approx(without, rel=1e-6)
    value, kept = gradients(model, lambda: dropped.nll(model, inputs, KEY))
    assert value.item() != pytest.approx(without, rel=1e-3)
    again = replace(dropped, checkpoint_layers=True)
    other, found = gradients(model, lambda: again.nll(model, inputs, KEY))
    assert other.item() == value.item()
    for name, gradient in kept.items():
        most = float(mx.abs(gradient).max().item())
        assert mx.abs(found[name] - gradient).max().item() <= 3e-6 * most, name
