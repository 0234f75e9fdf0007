"""mlx-lm's form of an adapter: `adapters.safetensors` under the names of its modules.

`num_layers` counts from the end (0 and less: all), `keys` are relative to a layer or full paths,
and `scale` is the multiplier itself.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.checkpoint.adapters.adapter import Adapter, LowRank, most_common
from mlxgpt.checkpoint.adapters.settings import Settings
from mlxgpt.checkpoint.adapters.tensors import finite_tensors, listed, low_rank
from mlxgpt.errors import CheckpointError

WEIGHTS = "adapters.safetensors"
_FINGERPRINT = "base_fingerprint"  # a key of ours, which mlx-lm passes over
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_PARTS = {"lora_a": "a", "lora_b": "b", "m": "m"}


@dataclass(frozen=True)
class LastLayers:
    """The modules (for "full": weights) `keys` of the last `num_layers` layers."""

    keys: frozenset[str]
    num_layers: int

    def names(self, path: str, n_layer: int) -> bool:
        match = _LAYER.fullmatch(path)
        if path in self.keys or match is None:
            return path in self.keys
        last = self.num_layers <= 0 or int(match[1]) >= n_layer - self.num_layers
        return last and match[2] in self.keys


def read_mlx(directory: Path, settings: Settings) -> Adapter:
    """Read an adapter of mlx-lm. Raises `CheckpointError`."""
    file = directory / WEIGHTS
    num_layers = settings.whole("num_layers", -1)
    fine_tune_type = settings.choice("fine_tune_type", ("lora", "dora", "full"), "lora")
    base, fingerprint = settings.text("model"), settings.text(_FINGERPRINT)
    if fine_tune_type == "full":
        weights = finite_tensors(file)
        keys = (
            settings.inside("lora_parameters").names("keys")
            if settings.has("lora_parameters")
            else None
        )
        targets = _targets(keys, num_layers, weights, settings)
        return Adapter(
            fine_tune_type="full",
            weights=weights,
            targets=targets,
            base=base,
            base_fingerprint=fingerprint,
            source=str(directory),
        )
    parameters = settings.inside("lora_parameters")
    rank, scale = parameters.whole("rank", 1), parameters.number("scale")
    dropout, keys = parameters.share("dropout"), parameters.names("keys")
    parts: defaultdict[str, dict[str, mx.array]] = defaultdict(dict)
    for name, tensor in finite_tensors(file).items():
        path, _, last = name.rpartition(".")
        if last not in _PARTS or not path:
            raise CheckpointError(f"{file}: {name!r} is not part of an adapter")
        parts[path][_PARTS[last]] = tensor
    dora = fine_tune_type == "dora"
    modules = {
        path: low_rank(found, scale=scale, rank=rank, dora=dora, where=f"{file}: {path!r}")
        for path, found in parts.items()
    }
    return Adapter(
        fine_tune_type="dora" if dora else "lora",
        modules=modules,
        targets=_targets(keys, num_layers, modules, settings),
        dropout=dropout,
        base=base,
        base_fingerprint=fingerprint,
        source=str(directory),
    )


def _targets(
    keys: tuple[str, ...] | None, num_layers: int, found: Any, settings: Settings
) -> LastLayers:
    """Return what the settings ask for. Without `keys` that is what any layer has: versions of
    mlx-lm took different modules for it."""
    names = {path: relative(path) for path in found}
    if keys is None:
        return LastLayers(frozenset(names.values()), num_layers)
    extra = [path for path, key in names.items() if key not in keys and path not in keys]
    if extra:
        raise CheckpointError(
            f"{settings.where}: 'keys' does not list what is in {WEIGHTS}: {listed(extra)}"
        )
    return LastLayers(frozenset(keys), num_layers)


def relative(path: str) -> str:
    """Return what a module or weight is called in its layer; outside of layers, its path."""
    match = _LAYER.fullmatch(path)
    return match[2] if match else path


def to_mlx(adapter: Adapter, base: str | None) -> tuple[dict[str, Any], dict[str, mx.array]]:
    """Return (adapter_config.json, tensors) of an adapter in mlx-lm's form.

    That has one rank and one scale. Smaller ranks are filled up with zeros, and other scales are
    multiplied into `b`. Raises `CheckpointError` for what it has no room for.
    """
    if adapter.modules and adapter.weights:
        raise CheckpointError(
            f"{adapter.source} replaces whole weights too ({listed(adapter.weights)}), for which "
            "mlx-lm's form has no room: write it in PEFT's, or fuse it"
        )
    paths = adapter.modules or adapter.weights
    targets = adapter.targets
    if not isinstance(targets, LastLayers):  # counting from the end takes the network's depth
        targets = LastLayers(frozenset(paths), -1)
    rank = max((change.rank for change in adapter.modules.values()), default=0)
    scales = [change.scale for change in adapter.modules.values() if change.scale]
    scale = most_common(scales, 0.0)
    parameters: dict[str, Any] = {"keys": sorted(targets.keys)}
    if adapter.modules:
        parameters |= {"rank": rank, "scale": scale, "dropout": adapter.dropout}
    config: dict[str, Any] = {
        "fine_tune_type": adapter.fine_tune_type,
        "lora_parameters": parameters,
        "model": base,
        "num_layers": targets.num_layers,
    }
    if adapter.base_fingerprint is not None:
        config[_FINGERPRINT] = adapter.base_fingerprint
    tensors = dict(adapter.weights)
    for path, change in adapter.modules.items():
        tensors |= _tensors(path, change, rank, scale)
    return config, tensors


def _tensors(path: str, change: LowRank, rank: int, scale: float) -> dict[str, mx.array]:
    missing = rank - change.rank
    a = mx.pad(change.a, [(0, 0), (0, missing)]) if missing else change.a
    b = mx.pad(change.b, [(0, missing), (0, 0)]) if missing else change.b
    if change.scale != scale:
        b = b.astype(mx.float32) * (change.scale / scale)
    tensors = {f"{path}.lora_a": a, f"{path}.lora_b": b}
    return tensors if change.m is None else tensors | {f"{path}.m": change.m}
