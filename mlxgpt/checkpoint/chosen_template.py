"""A setting, such as `auto` or `chatml`, and a base -> the chat template to fine-tune with."""

import os
from dataclasses import dataclass
from pathlib import Path

from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.errors import ConfigError, did_you_mean
from mlxgpt.text import Tokenizer
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.text.templates import BUILTIN_NAMES, builtin_template, missing_tokens

_FALLBACK = "alpaca"
"""Needs no control tokens but the end of text, so that a model trained here can have it."""


@dataclass(frozen=True)
class ChosenTemplate:
    """A template, and what to say of it."""

    template: ChatTemplate | None
    """None: plain text, a prompt and its answer one after the other."""
    name: str
    """What it is called in a table."""
    added: bool
    """Whether it is another one than the base's own, so that it must be kept with the result."""
    notes: tuple[str, ...] = ()
    """What the user should know."""


def not_needed(asked: str) -> ChosenTemplate:
    """Return what is chosen for rows that are all texts, where `asked` is the setting."""
    note = f"all rows are texts, so that --template {asked} has no effect"
    return ChosenTemplate(None, "plain", added=False, notes=() if asked == "auto" else (note,))


def chosen_template(checkpoint: Checkpoint, tokenizer: Tokenizer, name: str) -> ChosenTemplate:
    """Return the template that `SFTDataConfig.template` asks for.

    `auto` is the base's own; where it has none, the built-in `alpaca`, with a note, or plain text
    if the vocabulary has no end of text either. `plain` is none. Else it is the name of a built-in
    one, or a file. Raises `ConfigError` for an unknown name and for a template whose control
    tokens are not in the vocabulary, and `TokenizerError` for a file that is no template.
    """
    if name == "auto":
        return _own(checkpoint, tokenizer) or _fallback(checkpoint, tokenizer)
    if name == "plain":
        return ChosenTemplate(None, "plain", added=False)
    if name in BUILTIN_NAMES:
        template = _builtin(name, tokenizer)
    elif name.endswith(".jinja") or (name and os.path.exists(os.path.expanduser(name))):
        template = ChatTemplate.read(Path(name).expanduser(), tokenizer.border_names())
    else:
        known = ("auto", "plain", *BUILTIN_NAMES)
        raise ConfigError(
            f"--template: there is no built-in chat template, and no file, called '{name}'"
            f"{did_you_mean(name, known)}"
        )
    if missing := missing_tokens(template.source, tokenizer):
        raise ConfigError(
            f"--template {name} needs {', '.join(missing)}, which the vocabulary of "
            f"{checkpoint.path} does not have; {_remedy(tokenizer)}"
        )
    return ChosenTemplate(template, name, added=True)


def _own(checkpoint: Checkpoint, tokenizer: Tokenizer) -> ChosenTemplate | None:
    source = checkpoint.chat_template
    if source is None:
        return None
    name = f"the chat template of {checkpoint.path}"
    template = ChatTemplate(source, tokenizer.border_names(), name=name)
    return ChosenTemplate(template, "the base's own", added=False)


def _fallback(checkpoint: Checkpoint, tokenizer: Tokenizer) -> ChosenTemplate:
    lacking = f"{checkpoint.path} has no chat template"
    if missing_tokens(_FALLBACK, tokenizer):
        note = f"{lacking}, and its vocabulary no end of text for a built-in one: rows are plain"
        return ChosenTemplate(None, "plain", added=False, notes=(note,))
    note = f"{lacking}: the built-in '{_FALLBACK}' is used (--template takes another one, or plain)"
    return ChosenTemplate(_builtin(_FALLBACK, tokenizer), _FALLBACK, added=True, notes=(note,))


def _builtin(name: str, tokenizer: Tokenizer) -> ChatTemplate:
    shown = f"the built-in chat template '{name}'"
    return ChatTemplate(builtin_template(name), tokenizer.border_names(), name=shown)


def _remedy(tokenizer: Tokenizer) -> str:
    if missing_tokens(_FALLBACK, tokenizer):
        return "with --template plain there are none"
    return f"--template {_FALLBACK} needs no control tokens but the end of text, which is there"
