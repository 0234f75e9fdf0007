"""What the user typed for a model -> the `Checkpoint` that it names."""

import os
from pathlib import Path

from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.hf import HFDirectory
from mlxgpt.errors import CheckpointError


def open_checkpoint(location: str | Path) -> Checkpoint:
    """Open a run, a model directory, a GGUF file, or a model of the Hugging Face Hub.

    Nothing but small files and headers is read. Raises `CheckpointError`.
    """
    return HFDirectory(model_directory(location))


def model_directory(path: str | Path) -> Path:
    """Return `path` as a model directory, or raise `CheckpointError` saying what is missing."""
    directory = Path(os.path.expanduser(path))
    if not os.path.exists(directory):
        raise CheckpointError(f"{directory} does not exist; expected a model or run directory")
    if not os.path.isdir(directory):
        raise CheckpointError(f"{directory} is a file; expected a model or run directory")
    if not os.path.isfile(directory / "config.json"):
        raise CheckpointError(f"{directory} is not a model directory: it has no config.json")
    return directory
