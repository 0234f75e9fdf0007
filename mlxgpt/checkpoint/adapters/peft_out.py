"""An adapter -> PEFT's settings and tensors."""

import re
from typing import Any

import mlx.core as mx

from mlxgpt.checkpoint.adapters.adapter import EMBEDDING, Adapter, most_common
from mlxgpt.checkpoint.adapters.peft_form import EMBEDDING_PARTS, PARTS, PREFIX
from mlxgpt.errors import CheckpointError

_LAYER = re.compile(r"model\.layers\.(\d+)\..*\.(\w+)")


def to_peft(adapter: Adapter, base: str | None) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Return (adapter_config.json, tensors) of an adapter in PEFT's form.

    Raises `CheckpointError` for what PEFT would not compute in the same way.
    """
    if adapter.fine_tune_type == "full":
        raise CheckpointError(
            f"{adapter.source} replaces whole weights, for which PEFT's form is not made: fuse it"
        )
    alphas = {path: change.scale * change.rank for path, change in adapter.modules.items()}
    rank, alpha = adapter.rank, most_common(list(alphas.values()), 0.0)
    targets, layers = _targets(adapter)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": _short(alpha),
        "lora_dropout": adapter.dropout,
        "target_modules": targets,
        "layers_to_transform": layers,
        "rank_pattern": {
            path: change.rank
            for path, change in sorted(adapter.modules.items())
            if change.rank != rank
        },
        "alpha_pattern": {
            path: _short(value) for path, value in sorted(alphas.items()) if value != alpha
        },
        "modules_to_save": sorted({_owner(name) for name in _saved(adapter)}) or None,
        "use_rslora": False,
        "use_dora": adapter.fine_tune_type == "dora",
        "bias": "none",
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    return config, _tensors(adapter)


def _tensors(adapter: Adapter) -> dict[str, mx.array]:
    tensors: dict[str, mx.array] = {}
    for name, array in adapter.weights.items():
        based = name not in _saved(adapter)
        path, _, part = name.rpartition(".")
        tensors[f"{PREFIX}{path}.base_layer.{part}" if based else PREFIX + name] = array
    for path, change in adapter.modules.items():
        arrays = {"a": change.a.T, "b": change.b.T, "m": change.m}
        for suffix, part in (EMBEDDING_PARTS if path == EMBEDDING else PARTS).items():
            array = arrays[part]
            if array is not None:
                tensors[f"{PREFIX}{path}.{suffix}"] = mx.contiguous(array)
    return tensors


def _saved(adapter: Adapter) -> list[str]:
    """Return the weights that are stored whole for themselves, not as the base of a change."""
    return [name for name in adapter.weights if _owner(name) not in adapter.modules]


def _targets(adapter: Adapter) -> tuple[list[str], list[int] | None]:
    """Return (target_modules, layers_to_transform): short names if each layer has the same."""
    by_layer: dict[int, set[str]] = {}
    for path in adapter.modules:
        match = _LAYER.fullmatch(path)
        if match is None:
            return sorted(adapter.modules), None
        by_layer.setdefault(int(match[1]), set()).add(match[2])
    names = next(iter(by_layer.values()), set())
    if any(other != names for other in by_layer.values()):
        return sorted(adapter.modules), None
    return sorted(names), sorted(by_layer)


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
