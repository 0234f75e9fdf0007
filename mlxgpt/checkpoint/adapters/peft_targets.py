"""PEFT's settings -> which modules they speak of, and what rank and strength each has.

A pattern is a regular expression that a stranger wrote, so looking for it has a time limit.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import regex

from mlxgpt.checkpoint.adapters.settings import Settings
from mlxgpt.errors import CheckpointError

_HEADS = ("model.embed_tokens", "lm_head")
_SECONDS = 1.0
_LONGEST = 20_000


@dataclass(frozen=True, kw_only=True)
class PEFTTargets:
    """What `target_modules` and its companions name, by PEFT's own rules."""

    modules: str | tuple[str, ...]
    """Names, each the end of a path; or a pattern for a whole path; or "all-linear"."""
    excluded: str | tuple[str, ...]
    layers: frozenset[int] | None
    layers_pattern: tuple[str, ...]
    saved: tuple[str, ...]
    """Modules that are stored whole, which are never targets."""
    where: str

    @classmethod
    def read(cls, settings: Settings) -> "PEFTTargets":
        """Take them from adapter_config.json. Raises `CheckpointError`."""
        modules = _names_or_pattern(settings, "target_modules")
        if not modules:
            raise CheckpointError(f"{settings.where} has no 'target_modules'")
        layers = _layers(settings)
        if isinstance(modules, str) and layers is not None:
            raise CheckpointError(
                f"{settings.where}: 'layers_to_transform' goes with a list of 'target_modules' only"
            )
        pattern = _names_or_pattern(settings, "layers_pattern")
        return cls(
            modules=modules,
            excluded=_names_or_pattern(settings, "exclude_modules"),
            layers=layers,
            layers_pattern=(pattern,) if isinstance(pattern, str) and pattern else tuple(pattern),
            saved=settings.names("modules_to_save") or (),
            where=settings.where,
        )

    def names(self, path: str, n_layer: int) -> bool:  # noqa: ARG002 (its layers have numbers)
        return self.match(path)

    def match(self, path: str) -> bool:
        """Return whether a module is a target."""
        if self._is_among(path, self.excluded):
            return False
        if any(found(rf"(^|.*\.){name}($|\..*)", path, self.where) for name in self.saved):
            return False
        if isinstance(self.modules, str) and self.modules.lower() == "all-linear":
            return path not in _HEADS
        if not self._is_among(path, self.modules):
            return False
        if self.layers is None or path in self.modules:
            return True
        return self._layer(path) in self.layers

    def _is_among(self, path: str, names: str | tuple[str, ...]) -> bool:
        if isinstance(names, str):
            return bool(names) and found(names, path, self.where) is not None
        return any(path == name or path.endswith(f".{name}") for name in names)

    def _layer(self, path: str) -> int | None:
        for name in self.layers_pattern or (r"[^.]*",):
            match = found(rf"(?:^|.*?\.){name}\.(?P<layer>\d+)\..*", path, self.where)
            if match is not None:
                return int(match["layer"])
        return None


class PatternValues:
    """Values by pattern (`rank_pattern`...): the first that fits the end of a path holds."""

    def __init__(self, values: Mapping[str, float], where: str) -> None:
        """Raises `CheckpointError` for a pattern that is none."""
        self._values = [
            (_compiled(rf"(.*\.)?({pattern})", where), value) for pattern, value in values.items()
        ]
        self._where = where

    def get(self, path: str, default: float) -> float:
        """Return the value for a module, or `default`."""
        for pattern, value in self._values:
            if _fits(pattern, path, self._where):
                return value
        return default


def found(pattern: str, path: str, where: str) -> "regex.Match[str] | None":
    """Match a whole path. Raises `CheckpointError` for a pattern that is none, or is too slow."""
    return _fits(_compiled(pattern, where), path, where)


def _compiled(pattern: str, where: str) -> "regex.Pattern[str]":
    try:
        if len(pattern) > _LONGEST:
            raise ValueError("is too long")
        return regex.compile(pattern)
    except (regex.error, ValueError, RecursionError, OverflowError, MemoryError) as e:
        raise CheckpointError(f"{where}: the pattern {ascii(pattern)[:60]} is none: {e}") from e


def _fits(pattern: "regex.Pattern[str]", path: str, where: str) -> "regex.Match[str] | None":
    try:
        return pattern.fullmatch(path, timeout=_SECONDS)
    except (TimeoutError, RecursionError, MemoryError) as e:
        shown = ascii(pattern.pattern)[:60]
        raise CheckpointError(f"{where}: the pattern {shown} takes too long") from e


def _names_or_pattern(settings: Settings, key: str) -> str | tuple[str, ...]:
    if isinstance(settings.content.get(key), str):
        return settings.content[key]
    return settings.names(key) or ()


def _layers(settings: Settings) -> frozenset[int] | None:
    value = settings.content.get("layers_to_transform")
    layers = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(layer) is not int or layer < 0 for layer in layers):
        raise CheckpointError(
            f"{settings.where}: 'layers_to_transform' must be layers, got {ascii(value)[:60]}"
        )
    return frozenset(layers) if layers else None
