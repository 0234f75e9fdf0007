"""A file of prompts, one JSON object a line -> what is asked for, checked before anything is done.

A line is `{"prompt": "..."}` or `{"messages": [...]}`. It may have an "id", and any setting of
`SamplingParams` for itself. Whatever else stands in it is its owner's, and is given back.
"""

import difflib
import json
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NoReturn

from mlxgpt import seeding
from mlxgpt.errors import ConfigError, DataError, MLXGPTWarning
from mlxgpt.infer.sampling import SamplingParams

SETTINGS = frozenset(field.name for field in fields(SamplingParams))
_ASKING = ("prompt", "messages", "id")
WRITTEN = frozenset(
    {
        *("line", "choice", "text", "finish_reason", "prompt_tokens", "generated_tokens"),
        *("error", "request"),
    }
)
"""What the results add to a line, and it may therefore not have."""
_OTHER_NAMES = {
    "tokens": "max_tokens",
    "max_new_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "num_samples": "n",
    "num_return_sequences": "n",
}
"""What other tools, and the command line, call some settings."""
_SEEDS = 2**48 - 1
"""Seeds stay exact in every reader of JSON, and short enough to type."""


@dataclass(frozen=True)
class Request:
    """One line of the file."""

    line: int
    """Its number, from 1."""
    given: dict[str, Any]
    """All that stands in it."""
    params: SamplingParams
    """The settings of the command line, and over them its own."""

    @property
    def text(self) -> str | None:
        """The text to continue, or None if it has messages."""
        return self.given.get("prompt")

    @property
    def messages(self) -> list[dict[str, Any]] | None:
        """The conversation to answer, or None if it has a prompt."""
        return self.given.get("messages")


def read_requests(name: str, defaults: SamplingParams) -> list[Request]:
    """Read a file of prompts, or standard input for `-`. Empty lines are passed over.

    A line without a seed has one that depends on the seed of `defaults` and its number. Raises
    `DataError` naming the file and the line for the first that cannot be used, or if there is none.
    A name that is nearly that of a setting is told of.
    """
    shown = "standard input" if name == "-" else name
    requests: list[Request] = []
    ids: dict[Any, int] = {}
    told: set[str] = set()
    for line, raw in _lines(name):
        where = f"{shown}, line {line}"
        given = parse_object(raw, where)
        _check(given, where)
        for key in given.keys() - told:
            told.add(key)
            if (meant := _misspelled(key)) is not None:
                _note(f"{where}: '{key}' is kept, and has no effect; '{meant}' would have")
        requests.append(Request(line, given, _params(given, defaults, line, where)))
        before = ids.setdefault(given.get("id"), line)
        if "id" in given and before != line:
            _note(f"{shown}: lines {before} and {line} have one id, {given['id']!r}")
    if not requests:
        raise DataError(f"{shown} has no prompts in it")
    return requests


def parse_object(raw: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object of a line. Raises `DataError` beginning with `where`."""
    try:
        content = json.loads(
            raw.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_each_once
        )
    except UnicodeDecodeError as e:
        raise DataError(f"{where} is not UTF-8 (at byte {e.start})") from e
    except json.JSONDecodeError as e:
        raise DataError(f"{where} is not JSON: {e.msg} at column {e.colno}") from e
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where} cannot be used: {e}") from e
    if not isinstance(content, dict):
        kind = {list: "a list", str: "a text", type(None): "null"}.get(type(content), "a value")
        raise DataError(f'{where} must be an object such as {{"prompt": "..."}}; it is {kind}')
    return content


def _lines(name: str) -> Iterator[tuple[int, bytes]]:
    if name != "-":
        whole = Path(name).expanduser().read_bytes()
    elif sys.stdin is not None:
        whole = sys.stdin.buffer.read()
    else:
        raise DataError("standard input is closed; give a file to --prompts")
    # Only a line feed ends a line: others, such as U+2028, may stand in a text of JSON.
    for line, raw in enumerate(whole.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if raw.strip():
            yield line, raw


def _check(given: Mapping[str, Any], where: str) -> None:
    """Refuse a line that asks for nothing or for two things, or has what results write."""
    if ("prompt" in given) == ("messages" in given):
        if "prompt" in given:
            raise DataError(f"{where} has both 'prompt' and 'messages'; which is it?")
        near = [n for n in given if difflib.get_close_matches(n, _ASKING[:2], n=1, cutoff=0.6)]
        hint = f"; is '{near[0]}' meant for one?" if near else ""
        raise DataError(f"{where} has neither 'prompt' nor 'messages'{hint}")
    prompt, messages = given.get("prompt", ""), given.get("messages", [{}])
    if not isinstance(prompt, str):
        raise DataError(f"{where}: 'prompt' must be a text; got {_short(prompt)}")
    if not isinstance(messages, list) or not messages:
        raise DataError(f"{where}: 'messages' must be a list of messages; got {_short(messages)}")
    own_id = given.get("id", "")
    if isinstance(own_id, bool) or not isinstance(own_id, str | int | float):
        raise DataError(f"{where}: 'id' must be a text or a number; got {_short(own_id)}")
    if taken := sorted(WRITTEN & given.keys()):
        raise DataError(
            f"{where} has '{taken[0]}', which is what results are written under; rename it"
        )


def _params(
    given: Mapping[str, Any], defaults: SamplingParams, line: int, where: str
) -> SamplingParams:
    own = {name: value for name, value in given.items() if name in SETTINGS}
    if own.get("seed") is None:
        own["seed"] = seeding.derive(defaults.seed, "prompt", line) & _SEEDS
    try:
        if "logit_bias" in own:
            own["logit_bias"] = _biases(own["logit_bias"])
        return replace(defaults, **own)
    except ConfigError as e:
        raise DataError(f"{where}: {e}") from e


def _biases(value: Any) -> Any:
    """Return ids as numbers: JSON has texts for keys. Raises `ConfigError` for what is no id."""
    if not isinstance(value, dict):
        return value
    if wrong := [name for name in value if not (name.isascii() and name.isdecimal())]:
        raise ConfigError(f"'logit_bias' must have ids as keys; got {_short(wrong[0])}")
    return {int(name): bias for name, bias in value.items()}


def _misspelled(name: str) -> str | None:
    """Return the name that `name` was probably meant for, if it has no meaning here."""
    known = [*SETTINGS, *_ASKING]
    if name in known:
        return None
    plain = name.lower().replace("-", "_")
    near = difflib.get_close_matches(plain, known, n=1, cutoff=0.85)
    return _OTHER_NAMES.get(plain) or (near[0] if near else None)


def _note(text: str) -> None:
    warnings.warn(text, MLXGPTWarning, stacklevel=2)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"'{twice}' stands in it twice")
    return result
