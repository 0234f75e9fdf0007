"""The `quantization` of a config.json <-> which matrices are packed, and how.

mlx-lm's form: common settings on top, `{group_size, bits, mode}`, and beside them an entry for each
module that differs, its path -> settings or false.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.errors import ConfigError
from mlxgpt.model import GPTConfig, Quantization, weight_shapes

_SETTINGS = ("group_size", "bits", "mode")


class QuantizationSettings:
    """What a config.json says of quantization."""

    def __init__(self, values: ConfigValues) -> None:
        self._values = values
        self._common = _settings(values, _SETTINGS)
        self.modules: dict[str, Quantization | None] = {}
        """Modules with an entry of their own; None: not quantized."""
        for path, entry in values.raw.items():
            if path in _SETTINGS:
                continue
            if isinstance(entry, dict):
                inner = ConfigValues(entry, f"{values.where}: {path}")
                self.modules[path] = _settings(inner, tuple(entry))
            elif isinstance(entry, bool):
                self.modules[path] = self._common if entry else None
            elif entry is not None:
                raise values.error(f"{path} = {entry!r} is not supported")

    def of(self, path: str) -> Quantization | None:
        """Return how module `path` is packed, if it is; None: it may not be."""
        return self.modules.get(path, self._common)


def read_settings(values: ConfigValues) -> QuantizationSettings | None:
    """Return what the config says, None if it says nothing.

    Raises `CheckpointError` for methods other than MLX's own.
    """
    own = values.group("quantization")
    other = values.group("quantization_config")
    if own is not None:
        return QuantizationSettings(own)
    if other is None:
        return None
    method = other.raw.get("quant_method")
    if method is not None or "bits" not in other.raw or "group_size" not in other.raw:
        raise values.error(
            f"weights quantized by {method or 'an unnamed method'} (quantization_config) are not "
            "supported: take a version of this model that is not quantized, or one for MLX"
        )
    return QuantizationSettings(other)  # older versions of mlx-lm wrote this one


def quantization_keys(config: GPTConfig, modules: Mapping[str, Quantization]) -> dict[str, Any]:
    """Return the keys of a config.json for `modules`: {} for none.

    The settings of most modules stand on top; a matrix that is not packed has an entry `false`.
    """
    if not modules:
        return {}
    common = Counter(modules.values()).most_common(1)[0][0]
    group: dict[str, Any] = {key: asdict(common)[key] for key in _SETTINGS}
    for name, shape in weight_shapes(config):
        path = name.removesuffix(".weight")
        how = modules.get(path)
        if len(shape) == 2 and how != common:
            group[path] = False if how is None else {key: asdict(how)[key] for key in _SETTINGS}
    return {"quantization": group, "quantization_config": group}


def _settings(values: ConfigValues, keys: tuple[str, ...]) -> Quantization:
    strange = sorted(set(keys) - set(_SETTINGS))
    if strange:
        raise values.error(f"'{strange[0]}' is not supported")
    mode = values.raw.get("mode", "affine")
    if not isinstance(mode, str):
        raise values.error(f"'mode' must be a name, got {mode!r}")
    try:
        return Quantization(
            bits=values.size("bits"), group_size=values.size("group_size"), mode=mode
        )
    except ConfigError as e:
        raise values.error(str(e)) from e
