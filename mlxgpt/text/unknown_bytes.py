"""Words -> words of which only those bytes count that have a token, in vocabularies that lack some.

A byte-level vocabulary should have all 256 bytes. Some published ones lack control characters that
their corpus did not hold, or bytes of planes of Unicode without characters. The library leaves
these bytes out of a text without a word; here the ids are the same, and a warning says so.
"""

import warnings
from typing import final

import regex

from mlxgpt.errors import MLXGPTWarning


@final
class KnownBytes(str):
    """A word that is UTF-8 without some bytes."""

    kept: bytes = b""

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:  # noqa: ARG002
        """Return the bytes that are left."""
        return self.kept


@final
class UnknownBytes:
    """The bytes that a vocabulary lacks."""

    def __init__(self, missing: bytes) -> None:
        self.missing = missing
        single = [chr(byte) for byte in missing if byte < 0x80]
        # In texts that are not ASCII any character may hold one of the others.
        others = r"[^\x00-\x7f]" if len(single) < len(missing) else ""
        alternatives = [*map(regex.escape, single), *([others] if others else [])]
        self._perhaps = regex.compile("|".join(alternatives))

    def lost(self, text: str) -> list[int]:
        """Return the missing bytes that `text` has, in order."""
        if self._perhaps.search(text) is None:
            return []
        return sorted(set(text.encode("utf-8")) & set(self.missing))

    def known(self, text: str, words: list[str]) -> list[str]:
        """Return the words of `text`, those with missing bytes without them; warn of such."""
        lost = self.lost(text)
        if not lost:
            return words
        shown = ", ".join(f"0x{byte:02X}" for byte in lost)
        warnings.warn(
            f"the tokenizer has no token for the byte {shown}, which is left out of the text",
            MLXGPTWarning,
            stacklevel=6,
        )
        return [self._known(word) for word in words]

    def _known(self, word: str) -> str:
        data = word.encode("utf-8")
        kept = data.translate(None, self.missing)
        if len(kept) == len(data):
            return word
        known = KnownBytes(word)
        known.kept = kept
        return known
