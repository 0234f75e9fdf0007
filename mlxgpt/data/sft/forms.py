"""A row as its owner wrote it -> a conversation, a prompt with its completion, or a text.

A row is recognised by itself, by the names of its fields; a file may mix all forms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlxgpt.data.sft.json_values import shortened, type_name
from mlxgpt.data.sft.messages import Message, read_messages, read_text, read_tools
from mlxgpt.data.sft.row_files import RawRow
from mlxgpt.errors import DataError


@dataclass(frozen=True)
class Conversation:
    """Messages; the turns of the assistant are learned."""

    messages: Sequence[Message]
    """{"role", "content"} and what else a template knows."""
    tools: list[Any] | None = None
    """JSON schemas of functions."""
    unlearned: frozenset[int] = frozenset()
    """Which messages are not to be learned, though the assistant speaks."""


@dataclass(frozen=True)
class Completion:
    """What is asked, and what is to be said to it."""

    prompt: str
    completion: str


@dataclass(frozen=True)
class Passage:
    """A text; all of it is learned."""

    text: str


Form = Conversation | Completion | Passage


@dataclass(frozen=True)
class _Shape:
    needed: tuple[str, ...]
    more: tuple[str, ...] = ()


_SHAPES = (
    _Shape(("messages",), ("tools",)),
    _Shape(("conversations",), ("tools",)),
    _Shape(("prompt", "completion"), ("tools",)),
    _Shape(("prompt", "response"), ("tools",)),
    _Shape(("instruction", "output"), ("input",)),
    _Shape(("question", "answer")),
    _Shape(("text",)),
)
_KNOWN = "; ".join(" + ".join(shape.needed) for shape in _SHAPES)


def recognise(row: RawRow) -> Form:
    """Return what a row is.

    The first of these whose fields are there decides, and all other fields are ignored; a field
    that is null is not there:

    1. `messages`, and `tools` if there are any. A bare list of messages is the same.
    2. `conversations`, of {"from", "value"} or {"role", "content"}; `tools`.
    3. `prompt` and `completion`: texts, or lists of messages, which make a conversation together
       (a text beside a list is the message of a user, or of the assistant); of those the answers
       in the prompt are not learned. `tools`, beside lists.
    4. `prompt` and `response`: likewise.
    5. `instruction` and `output`; an `input` follows the instruction after a blank line.
    6. `question` and `answer`.
    7. `text`.

    So what a row was made of comes before the text that was made of it. Raises `DataError` naming
    file, line and field for another shape, and for a value of another type than these.
    """
    if isinstance(row.value, list):
        return Conversation(*_messages(row.value, f"{row.where}: messages"))
    shape = _shape(row)
    given: dict[str, Any] = row.value
    place = f"{row.where}: "
    match shape.needed:
        case ("messages",) | ("conversations",):
            [name] = shape.needed
            messages, tools, unlearned = _messages(given[name], place + name)
            return Conversation(messages, _tools(given, place) or tools, unlearned)
        case ("prompt", answer):
            return _completion(given, answer, place)
        case ("instruction", answer):
            asked = read_text(given["instruction"], place + "instruction")
            more = given.get("input")
            more = "" if more is None else read_text(more, place + "input")
            prompt = f"{asked}\n\n{more}" if more.strip() else asked
            return Completion(prompt, read_text(given[answer], place + answer))
        case (asked, answer):
            return Completion(
                read_text(given[asked], place + asked), read_text(given[answer], place + answer)
            )
        case _:
            return Passage(read_text(given["text"], place + "text"))


def ignored_fields(row: RawRow) -> list[str]:
    """Return the fields of a row, which is of a known form, that have no effect."""
    if isinstance(row.value, list):
        return []
    shape = _shape(row)
    used = {*shape.needed, *shape.more}
    return [name for name, value in row.value.items() if name not in used and value is not None]


def _shape(row: RawRow) -> _Shape:
    if not isinstance(row.value, dict):
        raise DataError(
            f"{row.where}: a row must be an object or a list of messages; it is "
            f"{type_name(row.value)}"
        )
    there = {name for name, value in row.value.items() if value is not None}
    for shape in _SHAPES:
        if there.issuperset(shape.needed):
            return shape
    raise DataError(f"{row.where}: {_unknown(row.value)}")


def _messages(items: Any, where: str) -> tuple[list[Message], None, frozenset[int]]:
    messages, unlearned = read_messages(items, where)
    return messages, None, unlearned


def _tools(given: dict[str, Any], place: str) -> list[Any] | None:
    return read_tools(given.get("tools"), f"{place}tools")


def _completion(given: dict[str, Any], answer: str, place: str) -> Completion | Conversation:
    asked, said = given["prompt"], given[answer]
    if not isinstance(asked, list) and not isinstance(said, list):
        if _tools(given, place):
            raise DataError(f"{place}tools need 'prompt' and '{answer}' to be lists of messages")
        return Completion(read_text(asked, f"{place}prompt"), read_text(said, f"{place}{answer}"))
    prompt, _ = read_messages(_listed(asked, "user", f"{place}prompt"), f"{place}prompt")
    more, unlearned = read_messages(_listed(said, "assistant", place + answer), place + answer)
    given_answers = {n for n, message in enumerate(prompt) if message["role"] == "assistant"}
    return Conversation(
        [*prompt, *more],
        _tools(given, place),
        frozenset(given_answers | {len(prompt) + n for n in unlearned}),
    )


def _listed(value: Any, role: str, where: str) -> list[Any]:
    if isinstance(value, list):
        return value
    return [{"role": role, "content": read_text(value, where)}]


def _unknown(given: dict[str, Any]) -> str:
    """Return what to say of an object of no known form."""
    fields = ", ".join(f"{name} (null)" if value is None else name for name, value in given.items())
    found = f"unknown kind of row; its fields are {shortened(fields, 160) or 'none'}"
    inner = next((n for n, v in given.items() if isinstance(v, list) and v), None)
    if "input_ids" in given:
        return f"{found}; rows of ids cannot be used, give the texts they were made of"
    if "role" in given or "from" in given:
        return f"{found}; this is one message, and a row is a list of them: put it into [ ]"
    if len(given) == 1 and inner is not None and isinstance(given[inner][0], dict):
        return f"{found}; if '{inner}' holds the rows, write that list alone into the file"
    return f"{found}; known are {_KNOWN}"
