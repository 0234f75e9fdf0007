"""The `pre_tokenizer` of a tokenizer.json -> steps, or the name of one that is not ours."""

from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

from mlxgpt.errors import TokenizerError
from mlxgpt.text.files.fields import Fields, flattened
from mlxgpt.text.files.patterns import read_pattern
from mlxgpt.text.pipeline.patterns import Pattern
from mlxgpt.text.pipeline.pre_tokenizers import (
    Behavior,
    Cut,
    Metaspace,
    PrefixSpace,
    PrependScheme,
    PreTokenizer,
    Step,
    gpt2_cut,
    split_cut,
)
from mlxgpt.text.pipeline.unsupported import Unsupported

_BEHAVIORS: Sequence[Behavior] = get_args(Behavior)
_SCHEMES: Sequence[PrependScheme] = get_args(PrependScheme)


class _ByteLevelEnd:
    """Stands where ByteLevel does."""


_Steps: TypeAlias = list[Step | _ByteLevelEnd]


def read_pre_tokenizer(value: Any) -> PreTokenizer:
    """Return the steps. Raises `TokenizerError` for what is damaged, else `Unsupported`."""
    steps: _Steps = flattened(value, "pre_tokenizer", "pretokenizers", _read)
    ours = tuple(step for step in steps if not isinstance(step, _ByteLevelEnd))
    byte_level = len(ours) < len(steps)
    if byte_level and (len(steps) - len(ours) > 1 or not isinstance(steps[-1], _ByteLevelEnd)):
        raise Unsupported("pre_tokenizer with steps behind ByteLevel")
    for n, step in enumerate(ours):
        if n > 0 and isinstance(step, Metaspace) and step.prepend_scheme == "first":
            raise Unsupported("pre_tokenizer Metaspace with prepend_scheme 'first' behind others")
    return PreTokenizer(ours, byte_level=byte_level)


def read_metaspace(fields: Fields) -> tuple[str, PrependScheme, bool]:
    """Return (replacement, prepend_scheme, split) of a Metaspace, which is a decoder too."""
    has_scheme = "prepend_scheme" in fields.content
    scheme = fields.choice("prepend_scheme", _SCHEMES, "always")
    # Files from before there was a prepend_scheme say it with add_prefix_space.
    if fields.has("add_prefix_space") and not fields.flag("add_prefix_space"):
        if has_scheme and scheme != "never":
            raise TokenizerError(
                f"{fields.where}: add_prefix_space false contradicts prepend_scheme '{scheme}'"
            )
        scheme = "never"
    split = fields.flag("split") if fields.has("split") else True
    return fields.character("replacement"), scheme, split


def _read(fields: Fields) -> _Steps:
    kind = fields.type
    match kind:
        case "Split":
            behavior = fields.choice("behavior", _BEHAVIORS)
            return [split_cut(read_pattern(fields), behavior, fields.flag("invert"))]
        case "ByteLevel":
            prefix = fields.flag("add_prefix_space")
            fields.flag("trim_offsets")
            return [
                *([PrefixSpace()] if prefix else []),
                *([gpt2_cut()] if fields.flag("use_regex", True) else []),
                _ByteLevelEnd(),
            ]
        case "Metaspace":
            return [Metaspace(*read_metaspace(fields))]
        case "Digits":
            individual = fields.flag("individual_digits")
            json = {"type": kind, "individual_digits": individual}
            return [Cut(r"\p{N}", "Isolated" if individual else "Contiguous", False, json)]
        case "Punctuation":
            behavior = fields.choice("behavior", _BEHAVIORS, "Isolated")
            json = {"type": kind, "behavior": behavior}
            return [Cut(r"[!-/:-@\[-`\{-~]|\p{P}", behavior, False, json)]
        case "Whitespace":
            return [Cut(r"\w+|[^\w\s]+", "Removed", True, {"type": kind})]
        case "WhitespaceSplit":
            return [Cut(r"\s", "Removed", False, {"type": kind})]
        case "CharDelimiterSplit":
            delimiter = fields.character("delimiter")
            json = {"type": kind, "delimiter": delimiter}
            return [Cut(Pattern("String", delimiter).expression, "Removed", False, json)]
        case other:
            raise Unsupported(f"pre_tokenizer '{other}'")
