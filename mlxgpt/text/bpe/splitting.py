"""Text -> words: the pieces inside which BPE may merge. It knows no bytes and no ids.

No character is lost: what a pattern does not match becomes a word of its own (the "Isolated"
behaviour of a tokenizer.json Split), so `"".join(splitter.split(text)) == text` for every pattern.
"""

from collections.abc import Iterator, Sequence
from typing import final

import regex

from mlxgpt.errors import TokenizerError
from mlxgpt.text.bpe.quick_words import QuickWords
from mlxgpt.text.surrogates import repair_surrogates

PATTERNS: dict[str, str] = {
    # Radford et al. 2019, the encoder of GPT-2.
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
    # The tokenizer.json files of Llama 3 and of Qwen 2: they differ in the digits of a word.
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
"""The patterns that other programs know by name (llama.cpp: gpt-2, llama-bpe, qwen2)."""


def resolve_pattern(pattern: str) -> str:
    """Return the regular expression behind a name of `PATTERNS`, or `pattern` itself."""
    return PATTERNS.get(pattern, pattern)


def pattern_name(expression: str) -> str | None:
    """Return the name in `PATTERNS` of a regular expression, or None if it has none."""
    return next((name for name, known in PATTERNS.items() if known == expression), None)


@final
class Splitter:
    """Cuts text by one regular expression, then each piece by the next; none means no cut."""

    def __init__(self, expressions: Sequence[str]) -> None:
        """Compile the `expressions`; `TokenizerError` says which one is not a valid pattern."""
        self.expressions = tuple(expressions)
        self._compiled = [_compile(expression) for expression in self.expressions]
        self._quick = None
        if len(self.expressions) == 1 and self.expressions[0] in PATTERNS.values():
            self._quick = QuickWords(self.expressions[0])

    def split(self, text: str) -> list[str]:
        """Return the words of `text` in order; none of them is empty."""
        if self._quick is not None:
            return self._quick.split(text)
        words = [text] if text else []
        for compiled in self._compiled:
            if len(words) == 1:
                words = _split_once(compiled, words[0])
            else:
                words = [piece for word in words for piece in _split_once(compiled, word)]
        return words

    def iterate(self, text: str) -> Iterator[str]:
        """Yield the same words as `split`, without holding all of them (for very long texts)."""
        if len(self._compiled) == 1:
            yield from _pieces(self._compiled[0], text)
        else:
            yield from self.split(text)


def _compile(expression: str) -> "regex.Pattern[str]":
    if not expression:
        raise TokenizerError("the split pattern is empty; give a name or a regular expression")
    if repair_surrogates(expression) != expression:
        raise TokenizerError(f"the split pattern must be a text, got {expression!r}")
    try:
        return regex.compile(expression)
    except regex.error as e:
        names = ", ".join(PATTERNS)
        raise TokenizerError(
            f"the split pattern '{expression}' is neither one of {names} "
            f"nor a regular expression: {e}"
        ) from e


def _split_once(compiled: "regex.Pattern[str]", text: str) -> list[str]:
    if compiled.groups == 0:
        words = compiled.findall(text)
        # Matches never overlap, so equal lengths mean that they cover the text.
        if sum(map(len, words)) == len(text):
            return words if all(words) else [word for word in words if word]
    return list(_pieces(compiled, text))


def _pieces(compiled: "regex.Pattern[str]", text: str) -> Iterator[str]:
    end = 0
    for match in compiled.finditer(text):
        if match.start() > end:
            yield text[end : match.start()]
        if match.end() > match.start():
            yield match.group()
        end = match.end()
    if end < len(text):
        yield text[end:]
