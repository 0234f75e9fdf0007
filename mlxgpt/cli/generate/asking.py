"""A text, or a line of a file of prompts -> the ids that the model is given."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlxgpt.cli.opened_model import OpenedModel
from mlxgpt.cli.prompt import ChatForm, Prompt, plain_prompt, question
from mlxgpt.cli.prompts_file import Request
from mlxgpt.errors import ConfigError, DataError, MLXGPTError


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How a model is asked. What is typed for the model is `model.name`."""

    model: OpenedModel
    chat: bool
    """Ask every prompt as a question."""
    system: str | None
    template: Path | None

    @cached_property
    def form(self) -> ChatForm:
        """The chat template. Raises `ConfigError` if there is none."""
        otherwise = ", or leave out --chat to have the prompt continued" if self.chat else ""
        return ChatForm(self.model, self.template, otherwise=otherwise)

    def of_text(self, text: str) -> Prompt:
        """Return what is asked by a text. Raises `ConfigError` or `TokenizerError`."""
        if self.chat:
            asked = question(text, self.system)
            return self.form.prompt(asked)
        return plain_prompt(self.model.checkpoint, self.model.tokenizer, text)

    def of_request(self, request: Request, file: str) -> Prompt:
        """Return what is asked by a line. Raises `DataError` naming it."""
        try:
            if request.messages is None:
                return self.of_text(request.text or "")
            messages = request.messages
            first = messages[0]
            has_system = isinstance(first, dict) and first.get("role") == "system"
            if self.system is not None and not has_system:
                messages = [{"role": "system", "content": self.system}, *messages]
            return self.form.prompt(messages)
        except MLXGPTError as e:
            raise DataError(f"{file}, line {request.line}: {e}") from e

    def check(self, requests: list[Request]) -> None:
        """Refuse what would have no effect on these. Raises `ConfigError`."""
        if self.chat or any(request.messages is not None for request in requests):
            return
        for option, value in (("--system", self.system), ("--chat-template", self.template)):
            if value is not None:
                raise ConfigError(
                    f"{option} has no effect without --chat, or lines with 'messages'"
                )
