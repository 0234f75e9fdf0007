"""Preset, file, flags, `--set` -> one `TrainConfig`; what comes later wins."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint import open_checkpoint
from mlxgpt.config import build, load_yaml, merge, nested, parse_assignment, to_dict
from mlxgpt.errors import ConfigError
from mlxgpt.model import preset
from mlxgpt.train.config import TrainConfig


def assemble(
    file: Path | None,
    preset_name: str | None,
    flags: Mapping[str, Any],
    assignments: Sequence[str],
) -> TrainConfig:
    """Return the config of a run. Raises `ConfigError` naming the setting that is wrong.

    `flags` maps dotted names ("optimizer.max_lr") to values; None means that the flag was not
    given. A file may name a `preset` of its own. With `init_from` (what `open_checkpoint` takes)
    and no preset, shape and tokenizer are those of that model, unless something else says so.
    """
    from_file = load_yaml(file) if file else {}
    layers: list[Mapping[str, Any]] = []
    if (name := from_file.pop("preset", None)) is not None:
        layers.append({"model": preset(str(name))})
    source = flags.get("init_from") or from_file.get("init_from")
    if isinstance(source, str) and not layers and preset_name is None:
        layers.append(_as_in(source))
    layers.append(from_file)
    if preset_name is not None:
        layers.append({"model": preset(preset_name)})
    layers.append(nested({k: v for k, v in flags.items() if v is not None}))
    layers.extend(parse_assignment(a) for a in assignments)
    values = merge(*layers)
    if not isinstance(values.get("data"), Mapping) or not values["data"].get("corpus"):
        raise ConfigError(
            "no corpus: give --corpus FILE, a folder, or a built-in one: python, shakespeare"
        )
    return build(TrainConfig, values)


def _as_in(source: str) -> dict[str, Any]:
    """Return the settings that make a network and a tokenizer like those in `source`."""
    return {"model": to_dict(open_checkpoint(source).config), "tokenizer": {"source": source}}
