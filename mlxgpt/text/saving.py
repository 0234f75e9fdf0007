"""A model and its added tokens -> files on disk, each replaced as a whole or not at all."""

import json
from pathlib import Path
from typing import Any

from mlxgpt.atomic import write_bytes
from mlxgpt.errors import TokenizerError
from mlxgpt.text.added_tokens import AddedTokens
from mlxgpt.text.byte_pair_model import BytePairModel
from mlxgpt.text.char_model import CharModel
from mlxgpt.text.tokenizer_json import to_tokenizer_config, to_tokenizer_json


def write_tokenizer(
    path: Path, model: BytePairModel | CharModel, added: AddedTokens, eos: str | None
) -> None:
    """Write tokenizer.json and tokenizer_config.json into the directory `path`.

    A `path` that ends in `.json` (and is no directory) is taken as the tokenizer.json itself.
    Raises `TokenizerError` naming the file that cannot be written.
    """
    content = to_tokenizer_json(model, added)
    if path.suffix == ".json" and not path.is_dir():
        _write_json(path, content)
        return
    _write_json(path / "tokenizer.json", content)
    _write_json(path / "tokenizer_config.json", to_tokenizer_config(eos))


def _write_json(path: Path, content: dict[str, Any]) -> None:
    data = (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, data)
    except OSError as e:
        raise TokenizerError(f"cannot write {path}: {e.strerror or e}") from e
