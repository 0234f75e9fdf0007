"""A folder with an adapter -> its facts, and the rows of the table."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

from mlxgpt.cli.info.rows import size

Facts = dict[str, Any]
_CONFIG = "adapter_config.json"
_KINDS = {"lora": "LoRA", "dora": "DoRA", "full": "whole weights"}


def is_adapter(path: Path) -> bool:
    """Return whether a folder holds an adapter and no model."""
    return os.path.isfile(path / _CONFIG) and not os.path.isfile(path / "config.json")


def adapter_facts(path: Path) -> Facts:
    """Return the facts. Raises `CheckpointError` for an adapter that is damaged or incomplete."""
    from mlxgpt.checkpoint import read_adapter

    adapter = read_adapter(path)
    arrays = [
        array
        for change in adapter.modules.values()
        for array in (change.a, change.b, change.m)
        if array is not None
    ]
    arrays += adapter.weights.values()
    changed = [*adapter.modules, *adapter.weights]
    ranks = Counter(change.rank for change in adapter.modules.values())
    scales = Counter(change.scale for change in adapter.modules.values())
    return {
        "kind": "adapter",
        "form": "PEFT" if os.path.isfile(path / "adapter_model.safetensors") else "mlx-lm",
        "fine_tune_type": adapter.fine_tune_type,
        "base": adapter.base,
        "ranks": {str(rank): count for rank, count in ranks.most_common()},
        "scales": sorted(scales),
        "dropout": adapter.dropout,
        "matrices": len(changed),
        "modules": sorted({_last(name) for name in changed}),
        "layers": len({layer for name in changed if (layer := _layer(name)) is not None}),
        "parameters": sum(array.size for array in arrays),
        "bytes_on_disk": sum(array.nbytes for array in arrays),
    }


def adapter_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return the rows of the table."""
    ranks, scales = list(facts["ranks"].items()), facts["scales"]
    rank = ", ".join([r if i == 0 else f"{r} in {count:,}" for i, (r, count) in enumerate(ranks)])
    scale = f"{scales[0]:g}" if len(scales) == 1 else ""
    if len(scales) > 1:
        scale = f"{scales[0]:g} to {scales[-1]:g}"
    rows = [
        ("adapter", f"{facts['model']} ({facts['form']}'s form)"),
        ("kind", _KINDS[facts["fine_tune_type"]]),
        ("base", facts["base"] or "not named"),
        ("rank", rank),
        ("scale", scale),
        ("dropout", f"{facts['dropout']:g}" if facts["dropout"] else ""),
        ("modules", f"{', '.join(facts['modules'])} in {facts['layers']:,} layers"),
        ("parameters", f"{facts['parameters']:,} in {facts['matrices']:,} matrices"),
        ("on disk", size(facts["bytes_on_disk"])),
    ]
    return [(name, words) for name, words in rows if words]


def _last(name: str) -> str:
    """Return the name of a module without where it stands: `q_proj`."""
    return name.removesuffix(".weight").removesuffix(".bias").rpartition(".")[2]


def _layer(name: str) -> int | None:
    return next((int(part) for part in name.split(".") if part.isdigit()), None)
