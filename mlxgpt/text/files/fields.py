"""One object of a tokenizer.json -> its fields, each of the right type or refused by its name."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast, final

from mlxgpt.errors import TokenizerError

_REQUIRED: Any = object()
Choice = TypeVar("Choice", bound=str)
Part = TypeVar("Part")


@final
class Fields:
    """The fields of an object; `where` is its place in the file, such as "normalizer"."""

    def __init__(self, value: Any, where: str) -> None:
        """Raises `TokenizerError` if `value` is no object."""
        if not isinstance(value, dict):
            raise TokenizerError(f"{where} must be an object, got {shown(value)}")
        self.content: dict[str, Any] = value
        self.where = where

    @property
    def type(self) -> str:
        """The name of the component."""
        return self.text("type")

    def text(self, name: str, default: str = _REQUIRED) -> str:
        """Return a text."""
        value = self._get(name, default)
        if not isinstance(value, str) or not is_text(value):
            raise self._wrong(name, "a text", value)
        return value

    def character(self, name: str) -> str:
        """Return a text of one character."""
        value = self.text(name)
        if len(value) != 1:
            raise self._wrong(name, "one character", value)
        return value

    def flag(self, name: str, default: bool = _REQUIRED) -> bool:
        """Return true or false."""
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def count(self, name: str) -> int:
        """Return a whole number from 0."""
        value = self._get(name, _REQUIRED)
        if not is_id(value):
            raise self._wrong(name, "a whole number from 0", value)
        return value

    def choice(self, name: str, among: "Sequence[Choice]", default: Any = _REQUIRED) -> Choice:
        """Return one of some texts."""
        value = self._get(name, default)
        if value not in among:
            raise self._wrong(name, f"one of {', '.join(among)}", value)
        return cast(Choice, value)

    def items(self, name: str) -> list[tuple[Any, str]]:
        """Return the entries of a list, each with its place."""
        value = self._get(name, _REQUIRED)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return [(entry, f"{self.where}.{name}[{n}]") for n, entry in enumerate(value)]

    def has(self, name: str) -> bool:
        """Return whether the field is there and not null."""
        return self.content.get(name) is not None

    def inside(self, name: str) -> "Fields":
        """Return the fields of an object in this one."""
        return Fields(self._get(name, _REQUIRED), f"{self.where}.{name}")

    def _get(self, name: str, default: Any) -> Any:
        value = self.content.get(name, default)
        if value is _REQUIRED:
            raise TokenizerError(f"{self.where} has no '{name}'")
        return value

    def _wrong(self, name: str, expected: str, value: Any) -> TokenizerError:
        return TokenizerError(f"{self.where}.{name} must be {expected}, got {shown(value)}")


def flattened(
    value: Any, where: str, members: str, read: Callable[[Fields], list[Part]]
) -> list[Part]:
    """Return the parts of a component that may be null, one, or a Sequence of `members`."""
    if value is None:
        return []
    fields = Fields(value, where)
    if fields.type != "Sequence":
        return read(fields)
    parts: list[Part] = []
    for entry, place in fields.items(members):
        # A member must be an object: only the whole component may be null.
        parts.extend(flattened(Fields(entry, place).content, place, members, read))
    return parts


def shown(value: Any) -> str:
    """Return `value` as it stands in a message: on one line and not too long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def is_id(value: Any) -> bool:
    """Return whether `value` is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_text(value: str) -> bool:
    """Return whether `value` has a UTF-8 form: no half of a surrogate pair is in it."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
