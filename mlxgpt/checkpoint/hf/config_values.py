"""One object of a JSON file -> values that have the right type, or an error that names the key."""

from collections.abc import Mapping
from typing import Any

from mlxgpt.errors import CheckpointError, one_line


class ConfigValues:
    """Typed access to `raw`. `where` names the file, and the object in it, in messages.

    Every method raises `CheckpointError`. A key that is absent has the `default`, if one is given;
    null has one only where the method says so.
    """

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw = raw
        self.where = where

    def size(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number that is at least `least`."""
        value = self.raw.get(key, default)
        if type(value) is not int or value < least:
            raise self.error(
                f"'{key}' must be a whole number above {least - 1}, got {_short(value)}"
            )
        return value

    def size_or_none(self, key: str, default: int | None = None) -> int | None:
        """Return a size, or None for null."""
        return None if self.raw.get(key, default) is None else self.size(key, default)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number as float."""
        value = self.raw.get(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                pass
        raise self.error(f"'{key}' must be a number, got {_short(value)}")

    def number_or_none(self, key: str) -> float | None:
        """Return a number, or None for null and for an absent key."""
        return None if self.raw.get(key) is None else self.number(key)

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false; null counts as absent."""
        value = self.raw.get(key)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(f"'{key}' must be true or false, got {_short(value)}")
        return value

    def group(self, key: str) -> "ConfigValues | None":
        """Return the object at `key`, or None for null, an empty one and an absent key."""
        value = self.raw.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(f"'{key}' must be an object, got {_short(value)}")
        return ConfigValues(value, f"{self.where}: {key}") if value else None

    def error(self, message: str) -> CheckpointError:
        """Return (for `raise`) an error about this object."""
        return CheckpointError(one_line(f"{self.where}: {message}"))


def _short(value: Any) -> str:
    try:
        text = ascii(value)
    except ValueError:  # an integer too long to print
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:60]}..."
