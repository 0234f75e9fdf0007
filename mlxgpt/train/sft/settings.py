"""File, flags, `--set` -> one `SFTConfig`; what comes later wins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxgpt.config import build, load_yaml, merge, nested, parse_assignment
from mlxgpt.errors import ConfigError
from mlxgpt.train.sft.config import SFTConfig

# A low-rank change is small already, and what it adds to is not ours to shrink.
_DEFAULTS = {"optimizer": {"weight_decay": 0.0}}


def assemble_sft(
    file: Path | None,
    base: str | None,
    flags: Mapping[str, Any],
    assignments: Sequence[str],
) -> SFTConfig:
    """Return the config of a fine-tuning. Raises `ConfigError` naming the setting that is wrong.

    `flags` maps dotted names ("data.pack_mode") to values; None means that the flag was not given.
    `steps` and `epochs` take each other's place.
    """
    from_file = load_yaml(file) if file else {}
    given = {name: value for name, value in flags.items() if value is not None}
    if base is not None:
        given["base"] = base
    for one, other in (("steps", "epochs"), ("epochs", "steps")):
        if one in given and other not in given:
            from_file.pop(other, None)
    values = merge(_DEFAULTS, from_file, nested(given), *(parse_assignment(a) for a in assignments))
    if not values.get("base"):
        raise ConfigError("no model to start from: give a run, a directory, a GGUF or a Hub name")
    if not isinstance(values.get("data"), Mapping) or not values["data"].get("train"):
        raise ConfigError("no rows to learn: give --data FILE.jsonl, or a folder with train.jsonl")
    return build(SFTConfig, values)
