"""A module as it is now -> whether it has other arrays, or other modules inside it, later."""

from collections.abc import Callable, Collection
from operator import is_
from typing import Any
from weakref import ref

import mlx.nn as nn

Held = Callable[[], Any]
"""Gives an object, or None once nobody else has it."""


class WeightWatch:
    """Remembers which objects a module is made of: arrays, modules and numbers such as a scale.

    It keeps none of them in memory. An array whose numbers are written in place stays the same
    object and is not noticed.
    """

    def __init__(self, module: nn.Module) -> None:
        self._parts: list[tuple[Held, list[Held]]] = []
        self._numbers: list[tuple[dict[str, Any], str, int | float]] = []
        self._remember(module)

    def changed(self) -> bool:
        """Whether anything was replaced, added or taken away since. Takes about 10 us a block."""
        for held, then in self._parts:
            container = held()
            if container is None:
                return True
            now = _content(container)
            if len(now) != len(then) or not all(map(is_, now, [part() for part in then])):
                return True
        return any(place.get(name) != number for place, name, number in self._numbers)

    def _remember(self, container: Any) -> None:
        if not isinstance(container, dict | list):  # an array: there is nothing inside
            return
        content = list(_content(container))
        self._parts.append((_held(container), [_held(part) for part in content]))
        if isinstance(container, nn.Module):
            attributes = vars(container)
            for name, value in attributes.items():
                if isinstance(value, int | float) and not name.startswith("_"):
                    self._numbers.append((attributes, name, value))
        for part in content:
            self._remember(part)


def _content(container: dict[str, Any] | list[Any]) -> Collection[Any]:
    return container if isinstance(container, list) else container.values()


def _held(part: Any) -> Held:
    return (lambda: part) if type(part) in (dict, list) else ref(part)
