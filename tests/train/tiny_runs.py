"""Runs that take a fraction of a second: a small text, a small network, eager steps."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxgpt.config import build, merge
from mlxgpt.train import (
    Environment,
    Evaluation,
    Outcome,
    Prepared,
    RunDirectory,
    StepReport,
    TrainConfig,
    Trainer,
    prepare_resume,
    prepare_run,
)

EAGER = Environment(gemm_gflops=50.0, compiled=False, notes=())
COMPILED = Environment(gemm_gflops=50.0, compiled=True, notes=())

TEXT = "the cat sat on a mat while one dog ran to see what it could eat"


def write_corpus(path: Path, words: int = 250, seed: int = 0) -> Path:
    """Write a text of few words in which letters are easy to foresee."""
    draw = random.Random(seed)
    known = TEXT.split()
    path.write_text(" ".join(draw.choice(known) for _ in range(words)) + "\n", encoding="utf-8")
    return path


def tiny(corpus: Path, **changes: Any) -> TrainConfig:
    """Return a config of 10 steps of 2 x 4 windows of 16 tokens; `changes` are nested dicts."""
    values = {
        "data": {"corpus": str(corpus)},
        "tokenizer": {"source": "char"},
        "model": {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_kv_head": 1, "max_seq_len": 16},
        "optimizer": {"max_lr": 1e-2},
        "steps": 10,
        "micro_batch_size": 4,
        "eval_every": 4,
        "save_every": 3,
        "workers": 1,
    }
    return build(TrainConfig, merge(values, changes))


def ignore(what: str, done: int, total: int) -> None:
    """Watch the preparation and say nothing."""


def prepare(config: TrainConfig) -> Prepared:
    return prepare_run(config, ignore)


class Recorder:
    """Keeps what a trainer tells; calls `hook` at each step."""

    def __init__(self, hook: Callable[[int], None] = lambda _: None) -> None:
        self.steps: list[StepReport] = []
        self.evaluations: list[tuple[int, Evaluation]] = []
        self.saves: list[int] = []
        self._hook = hook

    def stepped(self, report: StepReport) -> None:
        self.steps.append(report)
        self._hook(report.step)

    def validated(self, step: int, evaluation: Evaluation) -> None:
        self.evaluations.append((step, evaluation))

    def saved(self, step: int) -> None:
        self.saves.append(step)


def start(
    folder: Path,
    config: TrainConfig,
    *,
    stop_after: int | None = None,
    environment: Environment = EAGER,
    observer: Recorder | None = None,
) -> Outcome:
    """Train in `folder` from the first step on, at most `stop_after` steps."""
    prepared = prepare(config)
    run = RunDirectory(folder)
    trainer = Trainer(prepared, run, environment=environment, observer=observer)
    run.create(prepared.config)
    trainer.resume()
    return trainer.run(_stopping(stop_after))


def go_on(
    folder: Path,
    *,
    stop_after: int | None = None,
    environment: Environment = EAGER,
    observer: Recorder | None = None,
) -> Outcome:
    """Resume the run in `folder` for at most `stop_after` further steps."""
    run = RunDirectory(folder)
    prepared = prepare_resume(run, ignore)
    trainer = Trainer(prepared, run, environment=environment, observer=observer)
    trainer.resume()
    return trainer.run(_stopping(stop_after))


def _stopping(after: int | None) -> Callable[[], bool]:
    asked = count()
    return lambda: after is not None and next(asked) >= after


def losses(folder: Path) -> list[tuple[int, float]]:
    """Return (step, loss) of the metrics, in their order."""
    return [(r["step"], r["loss"]) for r in RunDirectory(folder).metrics() if "loss" in r]


def evaluations(folder: Path) -> list[tuple[int, float]]:
    """Return (step, validation loss) of the metrics, in their order."""
    return [(r["step"], r["val_loss"]) for r in RunDirectory(folder).metrics() if "val_loss" in r]


def newest_state(folder: Path) -> Path:
    (state,) = (folder / "state").iterdir()
    return state


def arrays(file: Path) -> dict[str, np.ndarray]:
    """Return the tensors of a safetensors file."""
    loaded = mx.load(str(file))
    assert isinstance(loaded, dict)
    return {name: np.array(array) for name, array in loaded.items()}


def assert_same_run(a: Path, b: Path) -> None:
    """Weights, moments and logged losses are the same to the bit."""
    assert losses(a) == losses(b)
    assert evaluations(a) == evaluations(b)
    assert newest_state(a).name == newest_state(b).name
    for name in ("weights.safetensors", "optimizer.safetensors"):
        mine, theirs = arrays(newest_state(a) / name), arrays(newest_state(b) / name)
        assert mine.keys() == theirs.keys()
        for key in mine:
            assert mine[key].tobytes() == theirs[key].tobytes(), key
    shown = arrays(a / "model.safetensors")
    saved = arrays(newest_state(a) / "weights.safetensors")
    assert all(shown[k].tobytes() == saved[k].tobytes() for k in saved)


def flat(tree: Any) -> dict[str, np.ndarray]:
    """Return the leaves of a tree of arrays by name, as numpy."""
    return {name: np.array(leaf) for name, leaf in tree_flatten(tree)}


def largest_difference(a: Any, b: Any) -> float:
    left, right = flat(a), flat(b)
    assert left.keys() == right.keys()
    return max(float(np.abs(left[k] - right[k]).max()) for k in left)
