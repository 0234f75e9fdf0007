"""One optimizer step: the same however a batch is cut, shared, or computed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tiny_runs import flat, largest_difference, tiny

from mlxgpt.data import Batch
from mlxgpt.model import GPT, CausalAttend, init_weights
from mlxgpt.train import TrainConfig
from mlxgpt.train.objective import Objective
from mlxgpt.train.resolve import resolve
from mlxgpt.train.step import TrainStep

VOCAB, ROWS, LENGTH = 40, 8, 16


def batch(seed: int = 0, ragged: bool = True) -> Batch:
    """8 rows; if `ragged`, row r has weights only on its first 2 r + 1 targets."""
    draw = np.random.default_rng(seed)
    ids = draw.integers(0, VOCAB, (ROWS, LENGTH + 1), dtype=np.int32)
    weights = np.ones((ROWS, LENGTH), dtype=np.float32)
    if ragged:
        weights *= np.arange(LENGTH)[None] < 2 * np.arange(ROWS)[:, None] + 1
    return Batch(ids[:, :-1], ids[:, 1:], weights)


def cut(whole: Batch, parts: int) -> list[Batch]:
    rows = ROWS // parts
    return [whole.rows(i * rows, (i + 1) * rows) for i in range(parts)]


def config(**changes: Any) -> TrainConfig:
    # a large eps, since Adam makes a full step of the rounding error of a gradient near zero
    optimizer = {"eps": 1e-3, **changes.pop("optimizer", {})}
    changes.setdefault("micro_batch_size", ROWS)
    return resolve(tiny(Path("unused"), optimizer=optimizer, **changes), VOCAB)


def step_of(settings: TrainConfig, compiled: bool = False) -> TrainStep:
    model = GPT(settings.model)
    init_weights(model, 3)
    return TrainStep(model, Objective(dropout=settings.dropout), settings, compiled=compiled)


def train(settings: TrainConfig, parts: int = 1, steps: int = 3, compiled: bool = False) -> Any:
    """Return (weights, losses, norms) after a few steps on batches cut into `parts`."""
    step = step_of(settings, compiled)
    numbers = [step.run(i, cut(batch(i), parts)) for i in range(1, steps + 1)]
    step.close()
    losses, norms = ([a.item() for a in column] for column in zip(*numbers, strict=True))
    return step.parameters, losses, norms


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_accumulation_changes_nothing_though_the_rows_are_ragged(
    parts: int, optimizer: str
) -> None:
    settings = config(optimizer={"name": optimizer})
    whole, losses, norms = train(settings)
    cut_up, more_losses, more_norms = train(
        replace(settings, micro_batch_size=ROWS // parts, grad_accum_steps=parts), parts
    )
    assert more_losses == pytest.approx(losses, rel=1e-6)
    assert more_norms == pytest.approx(norms, rel=1e-5)
    assert largest_difference(whole, cut_up) < 1e-5


def test_a_token_counts_the_same_in_a_short_micro_batch() -> None:
    settings = config()
    step = step_of(settings)
    short, long = cut(batch(), 8)[0], cut(batch(), 8)[7]
    means = [step.evaluate([b])[0] / b.loss_weights.sum() for b in (short, long)]
    counts = [b.loss_weights.sum() for b in (short, long)]
    assert counts == [1, 15]
    loss, _ = step.run(1, [short, long])
    assert loss.item() == pytest.approx((means[0] * 1 + means[1] * 15) / 16, rel=1e-6)


def test_the_loss_is_the_mean_of_minus_log_softmax() -> None:
    step = step_of(config())
    model = GPT(config().model)
    model.update(step.parameters)
    b = batch()
    logits = np.array(model(mx.array(b.input_ids), CausalAttend())).astype(np.float64)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(logp, b.targets[..., None].astype(np.int64), -1)[..., 0]
    expected = (nll * b.loss_weights).sum() / b.loss_weights.sum()
    loss, _ = step.run(1, [b])
    assert loss.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_a_batch_and_change_nothing_but_rounding(workers: int) -> None:
    alone, losses, norms = train(config())
    shared, more_losses, more_norms = train(config(workers=workers), steps=3)
    assert more_losses == pytest.approx(losses, rel=1e-6)
    assert more_norms == pytest.approx(norms, rel=1e-5)
    assert largest_difference(alone, shared) < 1e-5


def test_more_workers_than_rows_are_not_started() -> None:
    assert config(workers=3, micro_batch_size=2).workers == 2


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_compiled_equals_eager(optimizer: str) -> None:
    settings = config(dropout=0.1, optimizer={"name": optimizer})
    eager, losses, norms = train(settings)
    compiled, more_losses, more_norms = train(settings, compiled=True)
    assert more_losses == pytest.approx(losses, rel=1e-6)
    assert more_norms == pytest.approx(norms, rel=1e-5)
    assert largest_difference(eager, compiled) < 1e-5


def test_dropout_depends_on_step_and_micro_batch_and_on_nothing_else() -> None:
    settings = config(dropout=0.5, micro_batch_size=4, grad_accum_steps=2)

    def loss(step: int, seed: int = 0, evaluate: bool = False) -> float:
        one = step_of(replace(settings, seed=seed))
        if evaluate:
            one.evaluate([batch(9)])
        return one.run(step, [batch(1), batch(1)])[0].item()  # type: ignore[return-value]

    # the initial blocks are the identity, so only the embedding's dropout acts
    assert loss(1) == loss(1) == loss(1, evaluate=True)
    assert len({loss(1), loss(2), loss(3), loss(1, seed=1)}) == 4
    plain = step_of(replace(settings, dropout=0.0)).run(1, [batch(1)])[0].item()
    one, two = (step_of(settings).run(1, b)[0].item() for b in ([batch(1)], [batch(1)] * 2))
    assert len({plain, one, two}) == 3  # the second micro-batch has another mask


def test_workers_draw_different_masks() -> None:
    same = np.repeat(batch(1, ragged=False).input_ids[:1], 2, axis=0)
    twice = Batch(same, same, np.ones_like(same, dtype=np.float32))
    once = twice.rows(0, 1)
    settings = config(dropout=0.5, micro_batch_size=2)
    single = step_of(settings).run(1, [once])[0].item()
    double = step_of(replace(settings, workers=2)).run(1, [twice])[0].item()
    assert single != double


def test_evaluation_has_no_dropout_and_leaves_training_alone() -> None:
    dropping, plain = step_of(config(dropout=0.5)), step_of(config())
    first = dropping.evaluate([batch()])
    dropping.run(1, [batch()])
    plain.run(1, [batch()])
    dropping.parameters = plain.parameters
    assert first == step_of(config()).evaluate([batch()])
    assert dropping.evaluate([batch()]) == dropping.evaluate([batch()]) == plain.evaluate([batch()])
    again = step_of(config(dropout=0.5))
    again.evaluate([batch()])
    assert again.run(1, [batch()])[0].item() != step_of(config()).run(1, [batch()])[0].item()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_evaluation_does_not_depend_on_the_batch_size(size: int, workers: int) -> None:
    nll, weight = step_of(config()).evaluate([batch()])
    cut_up, more = step_of(config(workers=workers)).evaluate(cut(batch(), ROWS // size))
    assert weight == more == batch().loss_weights.sum()
    assert cut_up == pytest.approx(nll, rel=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_bfloat16_is_only_for_the_passes(optimizer: str) -> None:
    step = step_of(config(dtype="bfloat16", optimizer={"name": optimizer}))
    full, losses, _ = train(config(optimizer={"name": optimizer}), steps=2)
    half = [step.run(i, [batch(i)])[0].item() for i in (1, 2)]
    assert half != losses
    assert half == pytest.approx(losses, rel=0.02)
    assert {a.dtype for a in flat(step.parameters).values()} == {np.dtype("float32")}
    moments = {n: a for n, a in flat(step.optimizer_state).items() if n.endswith((".m", ".v"))}
    assert {a.dtype for a in moments.values()} == {np.dtype("float32")}
    # a step in bfloat16 alone would lose updates below 1/256 of a weight
    assert largest_difference(step.parameters, full) < 0.02


def test_packed_segments_reach_the_loss() -> None:
    b = batch(ragged=False)
    segments = np.repeat(np.arange(4, dtype=np.int32), 4)[None].repeat(ROWS, axis=0)
    settings = config(optimizer={"max_lr": 0.1})
    step = step_of(settings)
    for i in range(1, 6):  # so that the blocks are no identity any more
        step.run(i, [batch(i)])
    packed = Batch(b.input_ids, b.targets, b.loss_weights, segments)
    pieces = [
        Batch(b.input_ids[:, i : i + 4], b.targets[:, i : i + 4], b.loss_weights[:, i : i + 4])
        for i in (0, 4, 8, 12)
    ]
    assert step.evaluate([packed])[0] == pytest.approx(step.evaluate(pieces)[0], rel=1e-5)
    assert step.evaluate([packed])[0] != pytest.approx(step.evaluate([b])[0], rel=1e-5)
