"""`state/step-N/` inside a run directory <-> everything that a resumed training needs.

A state is a folder that appears by one rename, so there is no half one; the newest is the one to
go on from, and the weights in it are the file that the run directory shows as its model.
"""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.atomic import discard, new_folder, sweep
from mlxgpt.checkpoint.json_file import read_json, write_json
from mlxgpt.checkpoint.safetensors import read_tensors, write_tensors
from mlxgpt.errors import CheckpointError

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
_WEIGHTS, _OPTIMIZER, _TRAINER = "weights.safetensors", "optimizer.safetensors", "trainer.json"
_NAME = re.compile(r"step-(\d+)")


@dataclass(frozen=True)
class TrainingState:
    """One saved moment of a training: `step` optimizer steps are done."""

    step: int
    weights: dict[str, mx.array]
    optimizer: dict[str, mx.array]
    trainer: dict[str, Any]
    """Plain facts: best value, totals, what the run must agree on to be resumed."""


def save_state(run: Path, state: TrainingState) -> Path:
    """Write `state` into `run`, drop older ones, and return the file with the weights.

    A crash at any moment leaves the old state or the new one. Raises `CheckpointError` when the
    disk refuses; what was there stays.
    """
    folder = run / "state"
    final = folder / f"step-{state.step:08d}"
    if (final / _TRAINER).exists():  # a resumed run that is stopped before its next step
        return final / _WEIGHTS
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        if final.exists():  # without its last file, so it was passed over
            discard(final)
        with new_folder(final) as temporary:
            write_tensors(temporary / _WEIGHTS, state.weights)
            write_tensors(temporary / _OPTIMIZER, state.optimizer)
            facts = {"format_version": FORMAT_VERSION, "step": state.step, "trainer": state.trainer}
            write_json(temporary / _TRAINER, facts)
    except (OSError, RuntimeError) as e:
        raise CheckpointError(
            f"cannot save step {state.step} into {folder}: {_reason(e)}; what was saved before is "
            f"untouched, go on later with --resume {run}"
        ) from e
    for _, other in _saved(run):  # also an incomplete one with a higher number
        if other != final:
            try:
                discard(other)
            except OSError as e:
                log.warning("cannot remove %s: %s", other, e)
    return final / _WEIGHTS


def load_state(run: Path) -> TrainingState:
    """Load the newest complete state of `run`.

    Incomplete folders are passed over with a note. Raises `CheckpointError` if there is no state,
    or if it is damaged.
    """
    saved = _saved(run)
    if not saved:
        if (run / "config.json").exists():
            raise CheckpointError(
                f"{run} holds weights only, no training state: start a new run with "
                f"--init-from {run}"
            )
        raise CheckpointError(f"{run} holds no saved training state")
    for step, folder in saved:
        if not (folder / _TRAINER).exists():
            log.warning("%s is incomplete and is passed over", folder)
            continue
        facts = read_json(folder / _TRAINER)
        if facts.get("format_version") != FORMAT_VERSION:
            raise CheckpointError(
                f"{folder}: state format {facts.get('format_version')!r}, this version reads "
                f"{FORMAT_VERSION}"
            )
        trainer = facts.get("trainer")
        if facts.get("step") != step or not isinstance(trainer, dict):
            raise CheckpointError(f"{folder / _TRAINER} is not that of step {step}")
        return TrainingState(
            step=step,
            weights=read_tensors(folder / _WEIGHTS),
            optimizer=read_tensors(folder / _OPTIMIZER),
            trainer=trainer,
        )
    raise CheckpointError(f"{run} holds no complete training state")


def _reason(error: OSError | RuntimeError) -> str:
    """Say why a disk refused; MLX's own errors do not tell a full one from others."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{str(error).rstrip('.')} (is the disk full?)"


def _saved(run: Path) -> list[tuple[int, Path]]:
    """Return (step, folder) of all saved states, newest first."""
    found = []
    for folder in (run / "state").glob("step-*"):
        match = _NAME.fullmatch(folder.name)
        if match and folder.is_dir():
            found.append((int(match.group(1)), folder))
    return sorted(found, reverse=True)
