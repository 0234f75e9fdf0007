"""The tokens of a vocabulary -> which one ends a document, and what else marks borders."""

from collections.abc import Collection, Mapping

END_OF_TEXT = "<|endoftext|>"
"""The special token that ends a document."""

_OTHER_ENDS = (
    "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>", "<|eos|>", "[EOS]"
)  # fmt: skip
"""What others call it, where no file says so."""


def end_of_text(literals: Collection[str], names: Mapping[str, str] | None) -> str | None:
    """Return the one of `literals` (of added tokens) that ends a document, or None.

    That is `<|endoftext|>`, else the `eos_token` among the `names` of a tokenizer_config.json, else
    the first there is of the usual names.
    """
    named = (names or {}).get("eos_token")
    candidates = (END_OF_TEXT, *([named] if named else []), *_OTHER_ENDS)
    return next((name for name in candidates if name in literals), None)


def names_to_save(
    end: str | None, first: str | None, names: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the names for a tokenizer_config.json: those that were read, if there were any.

    Otherwise `end`, which ends a document, also pads, and `first`, which a post-processor
    puts before every text, begins one; a tokenizer of ours has one literal for all of it.
    """
    if names is not None:
        return {**({"eos_token": end} if end else {}), **names}
    if end is None:
        return {}
    begins = first or (END_OF_TEXT if end == END_OF_TEXT else None)
    return {**({"bos_token": begins} if begins else {}), "eos_token": end, "pad_token": end}
