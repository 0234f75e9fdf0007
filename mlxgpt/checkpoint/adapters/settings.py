"""adapter_config.json -> its fields, each of the right type or refused by its name."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, final

from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.errors import CheckpointError, one_line

CONFIG = "adapter_config.json"
_REQUIRED: Any = object()


@final
class Settings:
    """The fields of an object; `where` is its file, and its place in it."""

    def __init__(self, content: dict[str, Any], where: str) -> None:
        self.content, self.where = content, where

    @classmethod
    def read(cls, directory: Path) -> "Settings":
        """Read those of an adapter. Raises `CheckpointError`."""
        return cls(read_json(directory / CONFIG), str(directory / CONFIG))

    def has(self, key: str) -> bool:
        """Return whether there is a value that says something."""
        return self.content.get(key) not in (None, False, "", [], {})

    def inside(self, key: str) -> "Settings":
        """Return the fields of an object in this one."""
        value = self._get(key, _REQUIRED)
        if not isinstance(value, dict):
            self._refuse(key, "an object", value)
        return Settings(value, f"{self.where}: {key}")

    def flag(self, key: str) -> bool:
        """Return true or false; false where it is absent."""
        value = self._get(key, False)
        if not isinstance(value, bool):
            self._refuse(key, "true or false", value)
        return value

    def whole(self, key: str, least: int) -> int:
        """Return a whole number."""
        value = self._get(key, _REQUIRED)
        if type(value) is not int or not least <= value < 2**31:
            self._refuse(key, f"a whole number from {least}", value)
        return value

    def number(self, key: str, default: float = _REQUIRED) -> float:
        """Return a number that float32 can hold."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not abs(value) < 3e38:  # NaN is not below either
            self._refuse(key, "a number", value)
        return float(value)

    def share(self, key: str) -> float:
        """Return a number from 0 to below 1; 0 where it is absent."""
        value = self.number(key, 0.0)
        if not 0 <= value < 1:
            self._refuse(key, "from 0 to below 1", value)
        return value

    def text(self, key: str, default: str | None = None) -> str | None:
        """Return a text, or `default` where it is absent or null."""
        value = self._get(key, default)
        if value is not None and not isinstance(value, str):
            self._refuse(key, "a text", value)
        return value

    def choice(self, key: str, among: Sequence[str], default: str) -> str:
        """Return one of some texts."""
        value = self._get(key, default)
        if value not in among:
            self._refuse(key, f"one of {', '.join(among)}", value)
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return a list of texts, None where it is absent or null."""
        value = self._get(key, None)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self._refuse(key, "a list of texts", value)
        return tuple(value)

    def _get(self, key: str, default: Any) -> Any:
        value = self.content.get(key, default)
        if value is _REQUIRED:
            raise CheckpointError(f"{self.where} has no '{key}'")
        return value

    def _refuse(self, key: str, expected: str, value: Any) -> NoReturn:
        shown = ascii(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        message = f"{self.where}: '{key}' must be {expected}, got {shown}"
        raise CheckpointError(one_line(message))
