"""A folder without the weights we look for -> the reason: a half download, pickle, another format.

Looked at only when something is missing: a complete model opens, whatever lies beside it.
"""

import os
from pathlib import Path

from mlxgpt.errors import CheckpointError

_POINTER = b"version https://git-lfs"
_AGAIN = "the model is not complete: download it again"
_PICKLE = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_OTHER = {"*.gguf": "GGUF", "*.h5": "TensorFlow", "*.msgpack": "Flax", "*.npz": "NumPy"}


def refuse_placeholder(file: Path) -> None:
    """Raise `CheckpointError` for a file that is empty, or a Git LFS pointer to its content."""
    try:
        with file.open("rb") as f:
            start = f.read(len(_POINTER))
    except OSError:
        return  # whoever reads it says what is wrong
    if not start:
        raise CheckpointError(f"{file} is empty: {_AGAIN}")
    if start == _POINTER:
        raise CheckpointError(
            f"{file} is a Git LFS pointer instead of the file: run 'git lfs pull' there, or "
            "download the model again"
        )


def why_incomplete(directory: Path) -> str:
    """Return "; " and what to do, if an interrupted download has left traces, else ""."""
    if next(directory.rglob("*.incomplete"), None):  # .cache/huggingface/download is below it
        return f"; a download was interrupted and {_AGAIN}"
    if any(link.is_symlink() and not os.path.exists(link) for link in directory.iterdir()):
        return f"; files of the download cache are gone and {_AGAIN}"
    return ""


def refuse_other_weights(directory: Path) -> None:
    """Raise `CheckpointError` for a folder whose weights are in a format that is not read."""
    for pattern in _PICKLE:
        for file in sorted(directory.glob(pattern)):
            raise CheckpointError(
                f"{directory} has its weights as pickle ({file.name}), which can run any code when "
                "it is opened and is never read: take a version with .safetensors, or convert it "
                "with save_pretrained of transformers"
            )
    for pattern, name in _OTHER.items():
        for file in sorted(directory.glob(pattern)):
            what = f"give {file}" if name == "GGUF" else "take a version with .safetensors"
            raise CheckpointError(f"{directory} has its weights as {name} ({file.name}): {what}")
