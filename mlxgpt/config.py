"""Settings: nested dicts from YAML files, `--set a.b=c` and flags -> frozen dataclasses, strictly.

A config is a frozen, keyword-only dataclass beside its owner. This file only knows how to fill one:
unknown keys are refused with the nearest known name, values are checked against the annotated
types, and nothing is converted that could lose information.
"""

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from mlxgpt.errors import ConfigError, did_you_mean

T = TypeVar("T")


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping. `1e-5` is a number here (YAML 1.1 calls it a string).

    Raises `ConfigError` naming the file and the line.
    """
    import yaml  # 30 ms, and most commands read no file

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the config file {path}: {e}") from e
    try:
        loaded = yaml.load(text, Loader=_yaml_loader())
    # ValueError: a date such as 2001-02-30, a number of thousands of digits
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(e).split())}") from e
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path} must hold 'key: value' lines, got {type(loaded).__name__}")
    return loaded


def dump_yaml(config: Any) -> str:
    """Return a dataclass as YAML that `load_yaml` and `build` turn into an equal one."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    _read_exponents(Dumper)  # so that the text "1e5" is quoted
    text = yaml.dump(to_dict(config), Dumper=Dumper, sort_keys=False, allow_unicode=True)
    assert isinstance(text, str)
    return text


def _read_exponents(cls: Any) -> None:
    """Let a YAML loader or dumper know `1e-5` as a number; YAML 1.1 wants a dot in it."""
    cls.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
        list("-+.0123456789"),
    )


def _yaml_loader() -> type:
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    _read_exponents(Loader)

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # `<<: *other`
                continue
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                continue  # construct_mapping names the place
            if key in seen:
                line = key_node.start_mark.line + 1
                raise yaml.constructor.ConstructorError(
                    None, None, f"'{key}' stands twice, again in line {line}", key_node.start_mark
                )
            seen.add(key)
        return loader.construct_mapping(node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Loader


def parse_assignment(text: str) -> dict[str, Any]:
    """Turn `a.b=c` into `{"a": {"b": c}}`; `c` is read as YAML, so `1e-3`, `true`, `null` work."""
    import yaml

    path, sign, value = text.partition("=")
    keys = path.strip().split(".")
    if not sign or not all(keys):
        raise ConfigError(f"--set wants NAME=VALUE or GROUP.NAME=VALUE, got '{text}'")
    try:
        result = yaml.load(value, Loader=_yaml_loader())
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ConfigError(f"--set {text}: the value is not YAML: {' '.join(str(e).split())}") from e
    for key in reversed(keys):
        result = {key: result}
    return result


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; later ones win, leaf by leaf."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = merge(merged[key], value)
            else:
                merged[key] = value
    return merged


def build(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Make a `cls` from nested `values`.

    Raises `ConfigError` for an unknown key (naming the nearest known one), a value of another type
    than the field's annotation, or whatever `cls.__post_init__` refuses. `where` is the path of
    the group, for messages.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{where}.{name}" if where else str(name)
        if name not in fields:
            raise ConfigError(f"unknown setting '{path}'{did_you_mean(str(name), fields)}")
        arguments[name] = _convert(value, hints[name], path)
    missing = [
        n
        for n, f in fields.items()
        if n not in arguments
        and f.default is dataclasses.MISSING
        and f.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ConfigError(f"missing setting '{where + '.' if where else ''}{missing[0]}'")
    return cls(**arguments)


def to_dict(config: Any) -> dict[str, Any]:
    """Return a config dataclass as plain nested dicts, lists, strings and numbers."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _convert(value: Any, hint: Any, path: str) -> Any:
    """Check `value` against the type `hint`; ints become floats where a float is wanted."""
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        if isinstance(value, Mapping):
            return build(hint, value, path)  # type: ignore[arg-type]
    elif origin is Literal:
        if value in args:
            return value
        known = ", ".join(str(a) for a in args)
        raise ConfigError(f"'{path}' must be one of {known}; got {value!r}")
    elif origin in (Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        errors = []
        for arg in args:
            if arg is not type(None):
                try:
                    return _convert(value, arg, path)
                except ConfigError as e:
                    errors.append(e)
        raise (
            errors[-1]
            if len(errors) == 1
            else ConfigError(f"'{path}' must be {_describe(hint)}; got {value!r}")
        )
    elif origin in (tuple, list):
        if isinstance(value, (list, tuple)):
            inner = args[0] if args else Any
            return origin(_convert(v, inner, f"{path}[{i}]") for i, v in enumerate(value))
    elif hint is Any:
        return value
    elif hint is float:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
            raise ConfigError(f"'{path}' must be a finite number; got {value!r}")
    elif hint is bool or hint is str:
        if isinstance(value, hint):
            return value
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
    raise ConfigError(f"'{path}' must be {_describe(hint)}; got {value!r}")


def _describe(hint: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if a is type(None) else _describe(a) for a in args)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in args)
    if origin in (tuple, list):
        return "a list"
    if dataclasses.is_dataclass(hint):
        return "a group of settings"
    return names.get(hint, str(hint))


def require(condition: bool, message: str) -> None:
    """Raise `ConfigError(message)` unless `condition`; for `__post_init__`."""
    if not condition:
        raise ConfigError(message)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn {"a.b": c} into {"a": {"b": c}}."""
    result: dict[str, Any] = {}
    for path, value in flat.items():
        *groups, name = path.split(".")
        inner = result
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[name] = value
    return result
