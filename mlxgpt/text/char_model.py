"""Ordinary text -> ids, one for each character; a character that is not known becomes its bytes.

The 256 byte tokens (`<0x00>` to `<0xFF>`) make every text encodable without loss, also one in a
script that the vocabulary has never seen.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Literal, final

from mlxgpt.errors import TokenizerError
from mlxgpt.text.word_cache import WordCache


@final
class CharModel:
    """The characters, ids from 0, followed by the 256 bytes."""

    kind: Literal["char"] = "char"

    def __init__(self, characters: Sequence[str]) -> None:
        """Take the `characters` in the order of their ids; none stands twice."""
        self.characters = tuple(characters)
        self._id_of = {character: i for i, character in enumerate(self.characters)}
        wrong = [c for c in self.characters if len(c) != 1 or "\ud800" <= c <= "\udfff"]
        if wrong or len(self._id_of) != len(self.characters):
            what = f"{wrong[0]!r} is not a character" if wrong else "a character stands twice"
            raise TokenizerError(f"the vocabulary of a character tokenizer is damaged: {what}")
        self._with_bytes = WordCache(self._encode_character)

    def __reduce__(self) -> tuple[type["CharModel"], tuple[tuple[str, ...]]]:
        return CharModel, (self.characters,)

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of each id: the UTF-8 form of a character, or one byte."""
        bytes_themselves = (bytes([byte]) for byte in range(256))
        return (*(c.encode("utf-8") for c in self.characters), *bytes_themselves)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, which holds no lone surrogates."""
        try:
            return list(map(self._id_of.__getitem__, text))
        except KeyError:
            return list(chain.from_iterable(map(self._with_bytes.__getitem__, text)))

    def _encode_character(self, character: str) -> list[int]:
        known = self._id_of.get(character)
        if known is not None:
            return [known]
        first = len(self.characters)
        return [first + byte for byte in character.encode("utf-8")]


def byte_token(byte: int) -> str:
    """Return the name that tokenizer.json gives a byte: `<0x0A>` for a line end."""
    return f"<0x{byte:02X}>"
