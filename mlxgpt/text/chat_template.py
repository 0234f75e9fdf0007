"""Messages of a conversation -> the text, or the ids, that a model was trained to answer.

The template is a jinja program that comes with the model; it renders in a sandbox. What stands in
a message is text: the literal of a control token there does not act, those of the template do.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from mlxgpt.errors import TokenizerError
from mlxgpt.text.marked_messages import Given, MarkedMessages
from mlxgpt.text.marked_text import Marking
from mlxgpt.text.surrogates import repair_surrogates
from mlxgpt.text.template_budget import Budget
from mlxgpt.text.template_sandbox import BUDGET, GENERATION, Refusal, Sandbox
from mlxgpt.text.tokenizer import Tokenizer

Message = Mapping[str, Any]
_LONGEST = 1 << 20
"""Characters of a template; the longest known ones have some 30,000."""
_SHOWN = 300


@final
class ChatTemplate:
    """A template with the special tokens that it may name. Immutable; equal input, equal text,
    save where a template asks for today's date."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, name: str = "the chat template"
    ) -> None:
        """`special_tokens` are the names that a template knows, such as bos_token -> `<s>`
        (`Tokenizer.border_names`). `name` stands for the template in messages.

        Raises `TokenizerError` with the place of what is no jinja.
        """
        self.source = source
        self.special_tokens = dict(special_tokens)
        self.name = name
        if len(source) > _LONGEST:
            raise TokenizerError(f"{name} has {len(source):,} characters; {_LONGEST:,} are allowed")
        try:
            self._compiled = Sandbox().from_string(source)
        except Exception as e:  # jinja's errors, and those of Python for what jinja made of it
            raise self._failed(e) from e

    @classmethod
    def read(cls, file: Path, special_tokens: Mapping[str, str]) -> "ChatTemplate":
        """Read a template from a file. Raises `TokenizerError` naming it."""
        try:
            source = file.read_bytes().decode("utf-8-sig")
        except OSError as e:
            raise TokenizerError(f"cannot read {file}: {e.strerror or e}") from e
        except UnicodeDecodeError as e:
            raise TokenizerError(f"{file} is not UTF-8 (at byte {e.start})") from e
        return cls(source, special_tokens, name=str(file))

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        """Return the text of the conversation.

        A message is {"role": ..., "content": ...} and whatever else the template knows, `tools` are
        JSON schemas of functions; `add_generation_prompt` opens the answer of the assistant. An
        entry of a message that is None counts as absent. Raises `TokenizerError` with what the
        template said, what it lacks, or why it was stopped.
        """
        given = Given(_plain_messages(messages), _plain_tools(tools))
        return self._render(given, add_generation_prompt)

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Return the ids of the conversation, with nothing put around that the template does not.

        Those are the ids of `render` with all special tokens acting, if no message holds the
        literal of one. Where one does, it is encoded as the characters that it is. Raises what
        `render` raises, and `TokenizerError` for a template that puts a control token together out
        of what stands in messages.
        """
        marked = self.marked(tokenizer, messages, tools)
        return marked.marking.encode(marked.text(add_generation_prompt))

    def marked(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> MarkedMessages:
        """Return the messages in such a form that their text tells what stood in them."""
        given = Given(_plain_messages(messages), _plain_tools(tools))
        incoming = [given.messages, given.tools, self.special_tokens, self.source]
        return MarkedMessages(
            given, Marking(tokenizer, json.dumps(incoming, ensure_ascii=False)), self._render
        )

    def end_of_turn(self, tokenizer: Tokenizer) -> int | None:
        """Return the id of the special token with which the template ends an answer, if it does.

        Files do not always say that it ends a text: a model tuned for chat writes it nevertheless.
        """
        answer = "An answer."
        turns = [{"role": "user", "content": "A question."}]
        turns.append({"role": "assistant", "content": answer})
        try:
            _, found, rest = self.render(turns).rpartition(answer)
        except TokenizerError:
            return None
        rest = rest.lstrip()
        ends = [name for name in tokenizer.special_tokens if found and rest.startswith(name)]
        return tokenizer.special_tokens[max(ends, key=len)] if ends else None

    def _render(
        self, given: Given, add_generation_prompt: bool, around: tuple[str, str] | None = None
    ) -> str:
        size = len(json.dumps(given, ensure_ascii=False)) + len(self.source)
        try:
            return self._compiled.render(
                {
                    **self.special_tokens,
                    "messages": given.messages,
                    "tools": given.tools,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                    BUDGET: Budget(size),
                    GENERATION: around,
                }
            )
        except Exception as e:  # whatever a program can do wrong
            raise self._failed(e) from e

    def _failed(self, error: Exception) -> TokenizerError:
        message = " ".join(str(error).split()) or "it does not say why"
        if len(message) > _SHOWN:
            message = message[:_SHOWN] + "..."
        if isinstance(error, Refusal):
            return TokenizerError(f"{self.name} does not take these messages: {message}")
        if isinstance(error, RecursionError):
            message = "it nests too deep, or calls itself without end"
        elif not isinstance(error, TemplateError):
            message = f"{type(error).__name__}: {message}"
        what = "was stopped" if isinstance(error, SecurityError) else "does not work"
        line = _line(error)
        return TokenizerError(f"{self.name} {what}{f' in line {line}' if line else ''}: {message}")


def _line(error: Exception) -> int | None:
    """Return the line of the template in which the error came up; jinja rewrites tracebacks so."""
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    line, frame = None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    plain = []
    for number, message in enumerate(messages):
        where = f"messages[{number}]"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TokenizerError(f"{where} must be an object with a 'role', such as 'user'")
        given = {name: value for name, value in message.items() if value is not None}
        plain.append(_plain(given, where))
    return plain


def _plain_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[Any] | None:
    return None if tools is None else _plain(list(tools), "tools")


def _plain(value: Any, where: str) -> Any:
    """Return a copy that is nothing but JSON: other objects have methods that do things."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return repair_surrogates(str.__str__(value))
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {
            _plain(_text(name, where), where): _plain(item, f"{where}.{name}")
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{number}]") for number, item in enumerate(value)]
    raise TokenizerError(
        f"{where} is a {type(value).__name__}; a message holds texts, numbers, lists and objects"
    )


def _text(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise TokenizerError(f"{where} has a name that is no text: {name!r}")
    return name
