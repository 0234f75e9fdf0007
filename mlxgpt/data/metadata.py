"""The `metadata.json` of a cache folder: what it holds and in which version, checked when read."""

import json
from pathlib import Path
from typing import Any

from mlxgpt.errors import DataError

METADATA = "metadata.json"


def write_metadata(folder: Path, kind: str, version: int, content: dict[str, Any]) -> None:
    """Write `content` under the name and version of its format."""
    metadata = {"format": kind, "version": version, **content}
    (folder / METADATA).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def read_metadata(folder: Path, what: str, kind: str, version: int) -> dict[str, Any]:
    """Read it back. `what` names the cache ("token") in the `DataError` for another format."""
    try:
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise refused(folder, what, f"its {METADATA} cannot be read ({e})") from e
    if not isinstance(metadata, dict) or metadata.get("format") != kind:
        raise refused(folder, what, f"its {METADATA} is of another kind")
    if metadata.get("version") != version:
        raise refused(folder, what, f"it has version {metadata.get('version')}, not {version}")
    return metadata


def refused(folder: Path, what: str, why: str) -> DataError:
    """Return the error for a folder that must not be used and is not mended in silence."""
    return DataError(f"the {what} cache {folder} cannot be used: {why}; delete it and run again")
