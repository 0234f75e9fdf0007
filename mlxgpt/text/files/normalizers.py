"""The `normalizer` of a tokenizer.json -> steps, or the name of one that is not ours."""

from typing import Any

from mlxgpt.text.files.fields import Fields, flattened
from mlxgpt.text.files.patterns import read_pattern
from mlxgpt.text.pipeline.normalizers import (
    Lowercase,
    Normalizer,
    Prepend,
    Replace,
    Strip,
    StripAccents,
    UnicodeForm,
)
from mlxgpt.text.pipeline.unsupported import Unsupported


def read_normalizers(value: Any) -> tuple[Normalizer, ...]:
    """Return the steps. Raises `TokenizerError` for what is damaged, else `Unsupported`."""
    return tuple(flattened(value, "normalizer", "normalizers", _read))


def read_replace(fields: Fields) -> Replace:
    """Return a Replace, which is a decoder too."""
    replace = Replace(read_pattern(fields), fields.text("content"))
    if replace.pattern.kind == "Regex" and "$" in replace.content:
        # Whether $1 means a group is not the same in all versions of the library.
        raise Unsupported(f"{fields.where}: Replace with '$' in its content")
    return replace


def _read(fields: Fields) -> list[Normalizer]:
    match fields.type:
        case "NFC" | "NFD" | "NFKC" | "NFKD" as form:
            return [UnicodeForm(form)]
        case "Replace":
            return [read_replace(fields)]
        case "Prepend":
            return [Prepend(fields.text("prepend"))]
        case "Strip":
            return [Strip(fields.flag("strip_left"), fields.flag("strip_right"))]
        case "Lowercase":
            return [Lowercase()]
        case "StripAccents":
            return [StripAccents()]
        case other:
            raise Unsupported(f"normalizer '{other}'")
