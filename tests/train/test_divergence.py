"""A training that runs away ends with one sentence, and with the last weights that worked."""

import math
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tiny_runs import (
    EAGER,
    arrays,
    evaluations,
    go_on,
    losses,
    newest_state,
    prepare,
    start,
    tiny,
)

from mlxgpt.checkpoint import load_model
from mlxgpt.errors import DivergedError
from mlxgpt.train import RunDirectory, Trainer


def good(folder: Path) -> bool:
    """Whether the weights can be loaded and give finite numbers."""
    model = load_model(folder)
    return bool(mx.isfinite(model(mx.arange(16)[None])).all().item())


@pytest.mark.parametrize(
    "changes",
    [
        {"eval_every": 100, "save_every": 100},
        {"eval_every": 1, "save_every": 1},
        {"eval_every": 100, "save_every": 1},
        {"workers": 2, "optimizer": {"name": "muon", "muon_lr": 1e30}},
    ],
    ids=str,
)
def test_a_rate_that_is_far_too_high(tmp_path: Path, corpus: Path, changes: dict[str, Any]) -> None:
    optimizer = {"max_lr": 1e30, "lr_schedule": "constant", **changes.pop("optimizer", {})}
    folder = tmp_path / "run"
    with pytest.raises(DivergedError) as caught:
        start(folder, tiny(corpus, optimizer=optimizer, **changes))
    text = str(caught.value)
    assert text.startswith("step ")
    saved = 1 if changes.get("save_every") == 1 else 0
    assert f"the last good weights are those of step {saved} in {folder}" in text
    assert "lower --max-lr" in text
    assert newest_state(folder).name == f"step-{saved:08d}"
    assert good(folder)
    assert all(math.isfinite(loss) for _, loss in losses(folder))
    with pytest.raises(DivergedError):
        go_on(folder)
    assert good(folder)


def poisoned(
    folder: Path, corpus: Path, at: int, *, after: bool = False, **changes: Any
) -> Trainer:
    """Return a trainer whose weights turn into NaN before step `at`, or in its update."""
    prepared = prepare(tiny(corpus, **changes))
    run = RunDirectory(folder)
    run.create(prepared.config)
    trainer = Trainer(prepared, run, environment=EAGER)
    step, original = trainer._step, trainer._step.run

    def poison() -> None:
        gain = step.parameters["model"]["norm"]
        gain["weight"] = mx.full(gain["weight"].shape, math.nan)

    def run_poisoned(number: int, batches: Any) -> Any:
        if number == at and not after:
            poison()
        result = original(number, batches)
        if number == at and after:
            poison()
        return result

    step.run = run_poisoned  # type: ignore[method-assign]
    return trainer


@pytest.mark.parametrize("at", [1, 5, 9, 10])
def test_a_loss_that_is_no_number_names_its_step(tmp_path: Path, corpus: Path, at: int) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DivergedError, match=f"step {at}: the loss is nan") as caught:
        poisoned(folder, corpus, at).run()
    saved = (at - 1) // 3 * 3
    assert f"step {saved} in" in str(caught.value)
    assert newest_state(folder).name == f"step-{saved:08d}"
    assert good(folder)
    assert [s for s, _ in losses(folder)] == list(range(1, at))
    go_on(folder)
    assert all(np.isfinite(w).all() for w in arrays(folder / "model.safetensors").values())


@pytest.mark.parametrize(
    ("at", "what", "saved"),
    [(3, "the loss after the update", 0), (4, "the validation loss", 3), (10, "the validation", 9)],
)
def test_an_update_that_breaks_the_weights_is_not_saved(
    tmp_path: Path, corpus: Path, at: int, what: str, saved: int
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(DivergedError, match=f"step {at}: {what}.* is nan"):
        poisoned(folder, corpus, at, after=True).run()
    assert newest_state(folder).name == f"step-{saved:08d}"
    assert good(folder)
    assert all(math.isfinite(loss) for _, loss in evaluations(folder))


def test_a_stop_does_not_save_broken_weights(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    answers = iter([False] * 5 + [True])
    trainer = poisoned(folder, corpus, 5, save_every=100, eval_every=100)
    with pytest.raises(DivergedError):
        trainer.run(lambda: next(answers))
    assert good(folder)


def test_bfloat16_is_blamed_where_it_is_used(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(DivergedError, match="or dtype float32"):
        start(tmp_path / "r", tiny(corpus, dtype="bfloat16", optimizer={"max_lr": 1e30}))
