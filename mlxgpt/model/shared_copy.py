"""A network -> another one with the same arrays, whose modules can be given other arrays."""

import copy
from typing import Any, TypeVar, cast

import mlx.nn as nn

Module = TypeVar("Module", bound=nn.Module)


def shared_copy(module: Module) -> Module:
    """Return a copy of `module` and all modules in it; no array is copied.

    A function that is traced puts its tracers into the modules it runs: it needs ones of its own.
    """
    return cast(Module, _copied(module))


def _copied(value: Any) -> Any:
    if isinstance(value, nn.Module):
        new = copy.copy(value)
        new._no_grad = set(value._no_grad)
        for name, part in value.items():
            new[name] = _copied(part)
        return new
    if isinstance(value, list):
        return [_copied(part) for part in value]
    if isinstance(value, dict):
        return {name: _copied(part) for name, part in value.items()}
    return value
