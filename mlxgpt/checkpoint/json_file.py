"""Plain values <-> JSON files that are either the old one or the new one."""

import json
from pathlib import Path
from typing import Any

from mlxgpt.atomic import write_bytes
from mlxgpt.errors import CheckpointError


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, two spaces deep, atomically."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


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
