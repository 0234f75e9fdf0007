"""The content of a tokenizer -> files on disk, each replaced as a whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxgpt.atomic import write_bytes
from mlxgpt.errors import TokenizerError
from mlxgpt.text.files.tokenizer_config import to_tokenizer_config


def is_single_file(path: Path) -> bool:
    """Return whether `path` stands for the tokenizer.json itself and not for its directory."""
    return path.suffix == ".json" and not path.is_dir()


def write_tokenizer(path: Path, content: dict[str, Any], names: Mapping[str, str]) -> None:
    """Write tokenizer.json and tokenizer_config.json into the directory `path`.

    A `path` that ends in `.json` (and is no directory) is taken as the tokenizer.json itself.
    Raises `TokenizerError` naming the file that cannot be written.
    """
    if is_single_file(path):
        _write_json(path, content)
        return
    _write_json(path / "tokenizer.json", content)
    _write_json(path / "tokenizer_config.json", to_tokenizer_config(names))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    data = (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as e:
        raise TokenizerError(f"cannot write {path}: {e.strerror or e}") from e
