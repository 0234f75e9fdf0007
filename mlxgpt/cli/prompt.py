"""A prompt, or the messages of a chat -> the ids to begin with, and those that end the answer."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint import Checkpoint
from mlxgpt.cli.opened_model import OpenedModel
from mlxgpt.errors import ConfigError, MLXGPTWarning, TokenizerError
from mlxgpt.text import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """What generation begins with."""

    ids: list[int]
    stop_ids: frozenset[int]
    shown: str
    """What is printed before the first token."""

    @property
    def after(self) -> int | None:
        """The id that the text written goes on from; None for an answer, which is a text of its
        own. What follows a text keeps its space; an answer has none in front."""
        return self.ids[-1] if self.shown else None


def plain_prompt(checkpoint: Checkpoint, tokenizer: Tokenizer, text: str) -> Prompt:
    """Return a text to continue, with the tokens around it that the tokenizer's file asks for.

    An empty one begins with the token that ends a text. Raises `ConfigError` if there is none.
    """
    if found := [name for name in tokenizer.special_tokens if name in text]:
        warnings.warn(
            f"the prompt holds '{found[0]}', which is read as plain text; --chat puts control "
            "tokens around a question",
            MLXGPTWarning,
            stacklevel=2,
        )
    ids = tokenizer.encode(text, add_special_tokens=True)
    if not ids:
        if tokenizer.eot_id is None:
            raise ConfigError(
                f"{checkpoint.path} has no end-of-text token to start from: give a --prompt"
            )
        ids = [tokenizer.eot_id]
    return Prompt(ids, _stop_ids(checkpoint, tokenizer), text)


def question(text: str, system: str | None) -> list[dict[str, str]]:
    """Return the messages that ask one question.

    Raises `ConfigError` for an empty one.
    """
    if not text:
        raise ConfigError("--chat answers a question: give a --prompt")
    asked = [{"role": "user", "content": text}]
    return asked if system is None else [{"role": "system", "content": system}, *asked]


class ChatForm:
    """The form in which a model was trained to answer."""

    def __init__(
        self,
        opened: OpenedModel,
        template_file: Path | None,
        *,
        otherwise: str = "",
    ) -> None:
        """Take the template from a file, or else that of the adapter or the model.

        Raises `ConfigError` if there is none, `otherwise` saying what else one could do, and
        `TokenizerError` for one that cannot be used.
        """
        checkpoint, tokenizer = opened.checkpoint, opened.tokenizer
        template = opened.chat_template(template_file)
        if template is None:
            raise ConfigError(
                f"{checkpoint.path} has no chat template: give one with --chat-template FILE"
                f"{otherwise}"
            )
        self._template = template
        self._tokenizer = tokenizer
        end_name = tokenizer.border_names().get("eos_token", "")
        named = tokenizer.special_tokens.get(end_name)
        ends = {end for end in (template.end_of_turn(tokenizer), named) if end is not None}
        self.stop_ids = _stop_ids(checkpoint, tokenizer) | ends

    def ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the ids of a conversation whose next words are the model's answer.

        Raises `TokenizerError` for what the template refuses, or makes nothing of.
        """
        ids = self._template.encode(self._tokenizer, messages, add_generation_prompt=True)
        if not ids:
            raise TokenizerError(f"{self._template.name} makes nothing of the prompt")
        return ids

    def prompt(self, messages: Sequence[Mapping[str, Any]]) -> Prompt:
        """Return a conversation to be answered; raises as `ids`."""
        return Prompt(self.ids(messages), self.stop_ids, "")


def _stop_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> frozenset[int]:
    end = tokenizer.eot_id
    return checkpoint.stop_ids | (frozenset() if end is None else {end})
