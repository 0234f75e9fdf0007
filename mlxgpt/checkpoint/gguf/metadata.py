"""The metadata of a GGUF file -> values of the right type, or an error with the key's name."""

import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np

from mlxgpt.errors import CheckpointError


@final
class Metadata:
    """Metadata of one file; keys of the architecture (`llama.block_count`) go by their end."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        """`where` names the file in messages."""
        self.values, self.where = values, where
        self.architecture = self.text("general.architecture")

    def key(self, name: str) -> str:
        """Return the full name of a key of the architecture, given as `.block_count`."""
        return self.architecture + name if name.startswith(".") else name

    def has(self, name: str) -> bool:
        """Return whether there is such a key."""
        return self.key(name) in self.values

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text", value)
        return value

    def size(self, name: str) -> int:
        """Return a whole number above 0. One value for each layer is taken if all are the same."""
        value = self._get(name)
        if isinstance(value, list) and value and all(v == value[0] for v in value):
            value = value[0]
        if isinstance(value, list):
            raise CheckpointError(f"{self.where}: {self.key(name)} differs between layers")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self._wrong(name, "a whole number above 0", value)
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number; of one that is stored as float32 the shortest that means it."""
        if default is not None and not self.has(name):
            return default
        value = self._get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self._wrong(name, "a finite number", value)
        if abs(value) >= 1e38:  # float32 may not hold it
            return float(value)
        short = float(str(np.float32(value)))
        return short if np.float32(short) == value else float(value)

    def token_id(self, name: str) -> int | None:
        """Return an id, or None if there is no such key."""
        if not self.has(name):
            return None
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._wrong(name, "an id", value)
        return value

    def _get(self, name: str) -> Any:
        if not self.has(name):
            raise CheckpointError(f"{self.where}: the metadata has no '{self.key(name)}'")
        return self.values[self.key(name)]

    def _wrong(self, name: str, expected: str, value: Any) -> CheckpointError:
        return CheckpointError(
            f"{self.where}: {self.key(name)} must be {expected}, got {str(value)[:60]!r}"
        )
