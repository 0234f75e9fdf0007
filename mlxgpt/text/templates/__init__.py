"""The chat templates that come with the package: a name -> the source of one, and what it needs.

A template says in the comment at its top which control tokens the vocabulary must have.
"""

import re
from importlib.resources import files

from mlxgpt.config import require
from mlxgpt.errors import did_you_mean
from mlxgpt.text.tokenizer import Tokenizer

BUILTIN_NAMES = ("alpaca", "chatml", "gemma", "llama3", "mistral", "zephyr")

_TOKENS = re.compile(r"\A\{#-?(?:(?!#\}).)*?^ *tokens: ([^\n]*?) *-?#\}", re.DOTALL | re.MULTILINE)


def builtin_template(name: str) -> str:
    """Return the source of a built-in template. Raises `ConfigError` for another name."""
    require(
        name in BUILTIN_NAMES,
        f"there is no built-in chat template '{name}'{did_you_mean(name, BUILTIN_NAMES)}",
    )
    return files(__name__).joinpath(f"{name}.jinja").read_text(encoding="utf-8")


def missing_tokens(template: str, tokenizer: Tokenizer) -> list[str]:
    """Return the control tokens that a built-in template needs and this vocabulary lacks.

    `template` is its name or its source. A literal must be a special token; `bos_token` and
    `eos_token` stand for what `Tokenizer.border_names` says, whatever it is called. Of a source
    that does not say what it needs nothing is known, and nothing is missing.
    """
    source = builtin_template(template) if template in BUILTIN_NAMES else template
    found = _TOKENS.match(source)
    special, borders = tokenizer.special_tokens, tokenizer.border_names()
    return [
        name
        for name in (found[1].split() if found else [])
        if borders.get(name, name) not in special
    ]
