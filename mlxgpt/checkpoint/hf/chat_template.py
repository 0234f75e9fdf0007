"""A model directory -> its chat template, wherever that stands. Nothing is rendered here."""

import os
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.errors import CheckpointError

_FILE, _CONFIG = "chat_template.jinja", "tokenizer_config.json"


def read_chat_template(directory: Path) -> str | None:
    """Return the template of `chat_template.jinja`, else the one in `tokenizer_config.json`, else
    None. Of several named ones it is the "default". Raises `CheckpointError`."""
    file = directory / _FILE
    if os.path.lexists(file):
        try:
            return file.read_text(encoding="utf-8") or None
        except (OSError, ValueError) as e:
            raise CheckpointError(f"{file} cannot be read: {e}") from e
    if not os.path.lexists(directory / _CONFIG):
        return None
    found = read_json(directory / _CONFIG).get("chat_template")
    if isinstance(found, list):
        found = _default(found, directory)
    if found is not None and not isinstance(found, str):
        raise CheckpointError(
            f"{directory / _CONFIG}: 'chat_template' must be a text or a list of named ones, got "
            f"{type(found).__name__}"
        )
    return found or None


def _default(templates: list[Any], directory: Path) -> Any:
    for one in templates:
        if not isinstance(one, dict) or not {"name", "template"} <= one.keys():
            raise CheckpointError(
                f"{directory / _CONFIG}: each 'chat_template' of a list needs 'name' and 'template'"
            )
    return next((one["template"] for one in templates if one["name"] == "default"), None)
