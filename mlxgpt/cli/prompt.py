"""A prompt, or a question in a chat -> the ids to begin with, and those that end the answer."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from mlxgpt.checkpoint import Checkpoint
from mlxgpt.errors import ConfigError, MLXGPTWarning
from mlxgpt.text import Tokenizer
from mlxgpt.text.chat_template import ChatTemplate


@dataclass(frozen=True)
class Prompt:
    """What generation begins with."""

    ids: list[int]
    stop_ids: frozenset[int]
    shown: str
    """What is printed before the first token."""


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


def chat_prompt(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    question: str,
    system: str | None,
    template_file: Path | None,
) -> Prompt:
    """Return a question in the form in which the model was trained to answer.

    Raises `ConfigError` without a question or a template, `TokenizerError` for what the template
    refuses.
    """
    if not question:
        raise ConfigError("--chat answers a question: give a --prompt")
    names = tokenizer.border_names()
    if template_file is not None:
        template = ChatTemplate.read(template_file.expanduser(), names)
    elif (source := checkpoint.chat_template) is not None:
        template = ChatTemplate(source, names, name=f"the chat template of {checkpoint.path}")
    else:
        raise ConfigError(
            f"{checkpoint.path} has no chat template: give one with --chat-template FILE, or leave "
            "out --chat to have the prompt continued"
        )
    messages = [{"role": "user", "content": question}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    ids = template.encode(tokenizer, messages, add_generation_prompt=True)
    if not ids:
        raise ConfigError(f"{template.name} makes nothing of the prompt")
    named = tokenizer.special_tokens.get(names.get("eos_token", ""))
    ends = {end for end in (template.end_of_turn(tokenizer), named) if end is not None}
    return Prompt(ids, _stop_ids(checkpoint, tokenizer) | ends, "")


def _stop_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> frozenset[int]:
    end = tokenizer.eot_id
    return checkpoint.stop_ids | (frozenset() if end is None else {end})
