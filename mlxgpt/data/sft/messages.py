"""The messages of a row, as any tool writes them -> messages as chat templates want them."""

from typing import Any

from mlxgpt.data.sft.json_values import ROW_JSON, shortened, type_name
from mlxgpt.errors import DataError
from mlxgpt.text import repair_surrogates

Message = dict[str, Any]

ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("developer",), "developer"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model"), "assistant"),
    **dict.fromkeys(("tool", "observation", "function", "function_response"), "tool"),
    **dict.fromkeys(("tool_response",), "tool"),
    **dict.fromkeys(("ipython",), "ipython"),
    **dict.fromkeys(("function_call", "tool_call"), "assistant"),
}
"""What a role is called -> what a template calls it; small and capital letters are alike. The text
of the last two is JSON: a call, or a list of calls, that the assistant makes."""
_CALLS = ("function_call", "tool_call")


def read_messages(items: Any, where: str) -> tuple[list[Message], frozenset[int]]:
    """Return the messages, and which of them are not to be learned though the assistant speaks.

    An item has `role` and `content`, or `from` and `value`. A content is a text, or a list of
    parts of the type `text`, which are joined. What else stands beside a `role` goes to the
    template; null counts as absent. `weight` is 1, or 0 for an answer that is not to be learned.
    The arguments of a tool call may be an object or the JSON of one, and become an object.

    Raises `DataError` beginning with `where`, which is file, line and field.
    """
    if not isinstance(items, list):
        raise DataError(f"{where} must be a list of messages; it is {type_name(items)}")
    messages: list[Message] = []
    unlearned: set[int] = set()
    for number, item in enumerate(items):
        place = f"{where}[{number}]"
        if not isinstance(item, dict):
            raise DataError(f"{place} must be a message, an object; it is {type_name(item)}")
        given = {name: value for name, value in item.items() if value is not None}
        learned = _is_learned(given.pop("weight", 1), place)
        message = _read(given, place)
        if message["role"] == "assistant" and not learned:
            unlearned.add(number)
        messages.append(message)
    return messages, frozenset(unlearned)


def read_text(value: Any, where: str) -> str:
    """Return a text. Raises `DataError` for anything else."""
    if not isinstance(value, str):
        raise DataError(f"{where} must be a text; it is {type_name(value)}")
    return repair_surrogates(value)


def read_tools(value: Any, where: str) -> list[Any] | None:
    """Return the tools of a row: a list of objects, or the JSON of one; None if there are none."""
    if isinstance(value, str):
        value = _parse(value, where) if value.strip() else None
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise DataError(f"{where} must be a list of objects; it is {_short(value)}")
    return value


def _read(given: dict[str, Any], place: str) -> Message:
    if "role" in given:
        name, own = given["role"], "content"
        others = {key: value for key, value in given.items() if key not in ("role", "content")}
    elif "from" in given:
        name, own, others = given["from"], "value", {}
    else:
        raise DataError(f"{place} has no 'role' (or 'from'); its fields are {_fields(given)}")
    role = ROLES.get(name.lower()) if isinstance(name, str) else None
    if role is None:
        raise DataError(
            f"{place} has the unknown role {_short(name)}; known: {', '.join(sorted(ROLES))}"
        )
    calls = others.pop("tool_calls", None) or []
    if "function_call" in others:  # what OpenAI had before
        calls = [others.pop("function_call")]
    if name.lower() in _CALLS:
        read = _parse(read_text(given.get(own), f"{place}.{own}"), f"{place}.{own}")
        calls = read if isinstance(read, list) else [read]
        content = ""
    elif own in given:
        content = _content(given[own], f"{place}.{own}")
    elif calls:
        content = ""
    else:
        raise DataError(f"{place} has no '{own}' (or it is null); its fields are {_fields(given)}")
    message = {"role": role, "content": content, **others}
    if calls:
        message["tool_calls"] = _calls(calls, place)
    return message


def _content(value: Any, where: str) -> str:
    if not isinstance(value, list):
        return read_text(value, where)
    texts = []
    for number, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            what = f"is of the type {_short(kind)}" if kind is not None else f"is {_short(part)}"
            raise DataError(f"{where}[{number}] {what}; only parts of the type 'text' can be used")
        texts.append(read_text(part.get("text"), f"{where}[{number}].text"))
    return "".join(texts)


def _calls(calls: Any, place: str) -> list[Any]:
    if not isinstance(calls, list):
        raise DataError(f"{place}.tool_calls must be a list; it is {type_name(calls)}")
    return [_call(call, f"{place}.tool_calls[{n}]") for n, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    """Return a call as templates want it: under `function`, its arguments an object."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(
            f'{where} must be a call such as {{"name": "f", "arguments": {{}}}}; it is '
            f"{_short(call)}"
        )
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        arguments = _parse(arguments, f"{where}: 'arguments'") if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise DataError(
            f"{where}: 'arguments' must be an object, or the JSON of one; it is {_short(arguments)}"
        )
    inner = {**function, "arguments": arguments}
    outer = call if "function" in call else {"type": "function"}
    return {**outer, "function": inner}


def _is_learned(weight: Any, place: str) -> bool:
    if not isinstance(weight, bool | int | float) or weight not in (0, 1):
        raise DataError(
            f"{place}.weight is {_short(weight)}; it can be 1, or 0 for what is not to be learned"
        )
    return weight == 1


def _parse(text: str, where: str) -> Any:
    try:
        return ROW_JSON.decode(text)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where} must be JSON; it is {_short(text)}") from e


def _fields(given: dict[str, Any]) -> str:
    return shortened(", ".join(given), 120) or "none"


def _short(value: Any) -> str:
    return f"'{shortened(value, 40)}'" if isinstance(value, str) else type_name(value)
