"""tokenizer_config.json <-> the names of the tokens that mark borders, and nothing else of it.

Its `eos_token` ends documents here if the tokenizer has no `<|endoftext|>`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.files.fields import is_text, shown
from mlxgpt.text.files.loading import read_json

NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_names(folder: Path) -> dict[str, str] | None:
    """Return name -> literal of a tokenizer_config.json, or None if there is no such file.

    Raises `TokenizerError` naming the file for a name that is neither a text nor an object with
    one.
    """
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return None
    content = read_json(file)
    if not isinstance(content, dict):
        raise TokenizerError(f"{file} must hold an object, got {shown(content)}")
    names: dict[str, str] = {}
    for name in NAMES:
        value = content.get(name)
        if isinstance(value, dict):
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str) or not is_text(value):
            raise TokenizerError(f"{file}: {name} must be a text, got {shown(content[name])}")
        names[name] = value
    return names


def to_tokenizer_config(names: Mapping[str, str]) -> dict[str, Any]:
    """Return tokenizer_config.json: what `transformers` wants to know beside the tokenizer."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{name: names[name] for name in NAMES if name in names},
        "model_max_length": int(1e30),  # transformers' own sign for "not known here"
        "clean_up_tokenization_spaces": False,
    }
