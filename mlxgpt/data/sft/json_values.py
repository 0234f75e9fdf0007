"""JSON as rows are made of it: read strictly, and told of in short."""

import json
from typing import Any, NoReturn

_SHOWN = 40


def not_json(error: Exception) -> str:
    """Return what is wrong with a text that `ROW_JSON` refused, for a person, in short."""
    if isinstance(error, json.JSONDecodeError):
        message = error.msg.removesuffix(" at").rstrip(": ")
        if not error.doc[error.pos :].strip():
            return f"not JSON: {message} at column {error.colno}, where the text ends"
        found = excerpt(error.doc, error.pos)
        return f"not JSON: {message} at column {error.colno}, found {found}"
    if isinstance(error, RecursionError):
        return "not usable: lists and objects are nested too deeply"
    return f"not usable: {shortened(str(error), 120)}"


def excerpt(text: str, at: int) -> str:
    """Return a few quoted characters of a text."""
    return repr(shortened(text[at : at + _SHOWN].split("\n")[0], _SHOWN // 2))


def shortened(text: str, length: int) -> str:
    """Return a text in one line that is not much longer than `length`."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[:length] + "..."


def type_name(value: object) -> str:
    """Return what a value is called: `a text`, `a list`..."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON; write null for what is not there")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field '{shortened(twice, _SHOWN)}' stands twice in an object")
    return result


ROW_JSON = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_each_once)
"""JSON to the letter: no NaN, and no object with one of its fields twice."""
