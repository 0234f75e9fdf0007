"""Bytes -> files that are either the old one or the new one, never half of one.

Everything is written under a temporary name in the same folder, flushed to the disk and renamed.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlxgpt.errors import CheckpointError


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, flush it, and rename it to `path`.

    The temporary name keeps the suffix, which `mx.save_safetensors` insists on. On an error the
    temporary file is removed and what stood at `path` is untouched.
    """
    temporary = path.with_name(f"tmp-{os.getpid()}-{path.name}")
    try:
        write(temporary)
        flush(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    flush(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    write_atomic(path, lambda p: _write_bytes(p, text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, two spaces deep, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises `CheckpointError` naming the file and what is wrong with it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} is missing") from e
    except (OSError, ValueError, RecursionError) as e:
        raise CheckpointError(f"{path} cannot be read as JSON: {e}") from e
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value


def publish_directory(temporary: Path, final: Path) -> None:
    """Flush every file of `temporary` and rename the folder to `final`, which must not exist."""
    for file in temporary.iterdir():
        flush(file)
    flush(temporary)
    os.rename(temporary, final)
    flush(final.parent)


def share_file(source: Path, target: Path) -> None:
    """Make `target` another name of `source` (a copy where hard links are not to be had)."""
    if target.exists() and target.samefile(source):
        return  # a rename from one name of a file to another does nothing and leaves both

    def link(temporary: Path) -> None:
        # What a killed process left there may be a link itself: copying into it would overwrite
        # the file that it is a name of.
        temporary.unlink(missing_ok=True)
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    write_atomic(target, link)


def drop_leftovers(directory: Path) -> None:
    """Remove the temporary files that a killed process left in `directory`."""
    for leftover in directory.glob("tmp-*"):
        if leftover.is_file():
            leftover.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Ask the system to put a file or folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
