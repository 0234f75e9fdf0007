"""The `pattern` of a Split or a Replace in a tokenizer.json -> a pattern that we read alike."""

from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.files.fields import Fields, is_text, shown
from mlxgpt.text.pipeline.patterns import Pattern


def read_pattern(fields: Fields) -> Pattern:
    """Return it. Raises `Unsupported` if only the library's engine reads it as it is meant."""
    value: Any = fields.content.get("pattern")
    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in ("String", "Regex") and isinstance(text, str) and is_text(text):
            pattern = Pattern(kind, text)
            _ = pattern.compiled
            return pattern
    raise TokenizerError(
        f'{fields.where}.pattern must be {{"String": ...}} or {{"Regex": ...}}, got {shown(value)}'
    )
