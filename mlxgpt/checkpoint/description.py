"""What a model directory says of a model that was opened: everything in it but the weights."""

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mlxgpt.atomic import write_bytes
from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.hf.config_writing import to_hf
from mlxgpt.checkpoint.json_file import write_json
from mlxgpt.model import Quantization
from mlxgpt.text import Tokenizer

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)


def write_description(
    folder: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    *,
    dtype: str = "float32",
    quantization: Mapping[str, Quantization] | None = None,
    more_stop_ids: Iterable[int] = (),
) -> dict[str, Any]:
    """Write config, generation settings, tokenizer and chat template; return the config.

    `dtype` and `quantization` are those of the weights to come, `more_stop_ids` end a text besides
    those that `checkpoint` names. Raises `OSError` when the disk refuses, and `CheckpointError` for
    a network that no family of models has.
    """
    names, ids = tokenizer.border_names(), tokenizer.special_tokens
    bos, pad = (ids.get(names.get(f"{name}_token", "")) for name in ("bos", "pad"))
    stop_ids = checkpoint.stop_ids.union(more_stop_ids)
    raw = to_hf(
        checkpoint.config,
        bos_token_id=bos,
        eos_token_ids=sorted(stop_ids, key=lambda i: (i != tokenizer.eot_id, i)),
        pad_token_id=pad,
        dtype=dtype,
        quantization=quantization,
    )
    write_json(folder / "config.json", raw)
    generation = {"bos_token_id": bos, "eos_token_id": raw["eos_token_id"]}
    write_json(folder / "generation_config.json", generation)
    _write_tokenizer(checkpoint, tokenizer, folder)
    return raw


def _write_tokenizer(checkpoint: Checkpoint, tokenizer: Tokenizer, folder: Path) -> None:
    """Copy the source's own tokenizer files, or write them where it has none."""
    if (checkpoint.path / "tokenizer.json").is_file():
        for name in _TOKENIZER_FILES:
            if (checkpoint.path / name).is_file():
                shutil.copyfile(checkpoint.path / name, folder / name)
    else:
        tokenizer.save(folder)
    template = checkpoint.chat_template
    if template is not None and not (folder / "chat_template.jinja").exists():
        write_bytes(folder / "chat_template.jinja", template.encode())
