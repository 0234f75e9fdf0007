"""Normalizer, pre-tokenizer, decoder, settings of a tokenizer.json -> what we do, or a refusal.

Each function names the component that it refuses. Nothing is skipped, because a tokenizer that
leaves out one step still runs, and gives other ids than the model was trained on.
"""

from typing import Any

from mlxgpt.errors import TokenizerError
from mlxgpt.text.splitting import PATTERNS


def check_model_settings(model: dict[str, Any]) -> None:
    """Refuse any kind of model but BPE, and settings of BPE that change the ids."""
    kind = model.get("type", "BPE" if "merges" in model else None)  # GPT-2's own file has no type
    if kind != "BPE":
        raise TokenizerError(f"model.type {kind!r} is not supported; expected 'BPE'")
    for name in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise TokenizerError(f"model.{name} {model[name]!r} is not supported; expected none")
    for name in ("ignore_merges", "byte_fallback"):
        if not isinstance(model.get(name), bool | None):
            raise TokenizerError(f"model.{name} must be true or false, got {model[name]!r}")
    if model.get("dropout"):
        raise TokenizerError(
            f"model.dropout {model['dropout']!r} would make the ids random; set it to null: "
            "dropout is chosen when text is encoded"
        )


def check_no_normalizer(normalizer: Any) -> None:
    """Refuse every normalizer."""
    if normalizer is not None:
        raise _unsupported("normalizer", normalizer)


def check_only_byte_level(component: str, value: Any) -> None:
    """Refuse a decoder or post-processor other than ByteLevel, which changes no ids, or none."""
    if value is not None and _type(value) != "ByteLevel":
        raise _unsupported(component, value)


def check_reads_characters(content: dict[str, Any]) -> None:
    """Refuse a file with byte fallback that does more than a character tokenizer of ours."""
    if content["model"].get("merges"):
        raise TokenizerError("model.byte_fallback together with merges is not supported")
    if content["model"].get("unk_token"):
        raise TokenizerError("model.unk_token together with byte_fallback is not supported")
    for component in ("pre_tokenizer", "post_processor"):
        if content.get(component) is not None:
            raise _unsupported(component, content[component])
    decoder = content.get("decoder")
    parts = decoder.get("decoders") if isinstance(decoder, dict) else None
    if not isinstance(parts, list) or [_type(part) for part in parts] != ["ByteFallback", "Fuse"]:
        raise _unsupported("decoder", decoder)


def split_patterns(pre_tokenizer: Any) -> tuple[str, ...]:
    """Return the regular expressions that a pre-tokenizer cuts by, one after the other.

    Understood are ByteLevel, and a Sequence of Splits that ends with it.
    """
    steps = [pre_tokenizer]
    if _type(pre_tokenizer) == "Sequence":
        steps = pre_tokenizer.get("pretokenizers")
        if not isinstance(steps, list) or not steps:
            raise _unsupported("pre_tokenizer", pre_tokenizer)
    *splits, last = steps
    patterns = [_split_pattern(step) for step in splits]
    if _type(last) != "ByteLevel":
        raise _unsupported("pre_tokenizer", last)
    if last.get("add_prefix_space", True):
        raise TokenizerError("pre_tokenizer ByteLevel with add_prefix_space is not supported")
    if last.get("use_regex", True):
        patterns.append(PATTERNS["gpt2"])
    return tuple(patterns)


def _split_pattern(step: Any) -> str:
    if _type(step) != "Split":
        raise _unsupported("pre_tokenizer", step)
    if step.get("behavior") != "Isolated" or step.get("invert", False) is not False:
        raise TokenizerError(
            f"pre_tokenizer Split with behavior {step.get('behavior')!r} and "
            f"invert {step.get('invert')!r} is not supported; expected 'Isolated' and false"
        )
    import regex

    pattern = step.get("pattern")
    if isinstance(pattern, dict) and len(pattern) == 1:
        ((kind, text),) = pattern.items()
        if isinstance(text, str) and text:
            if kind == "Regex":
                return text
            if kind == "String":
                return regex.escape(text)
    raise TokenizerError(f"pre_tokenizer Split has no pattern that can be read: {pattern!r}")


def _type(component: Any) -> Any:
    return component.get("type") if isinstance(component, dict) else None


def _unsupported(component: str, value: Any) -> TokenizerError:
    name = _type(value)
    what = repr(value) if name is None else f"'{name}'"
    return TokenizerError(f"{component} {what} is not supported by mlxgpt's own tokenizer")
