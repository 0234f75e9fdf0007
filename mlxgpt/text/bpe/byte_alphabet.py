"""Bytes <-> the printable characters that stand for them inside a tokenizer.json file.

A JSON file cannot hold arbitrary bytes as text, so GPT-2 gave every byte one printable character:
the printable Latin-1 characters stand for themselves and the other 68 bytes take the code points
from 256 on, in order. A space is written `Ġ`, a line end `Ċ`. Source: `bytes_to_unicode` in
OpenAI's GPT-2 release (Radford et al. 2019).
"""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTABLE)]

BYTE_ORDER: tuple[int, ...] = (*_PRINTABLE, *_OTHERS)
"""The 256 bytes ordered by their characters: the ids 0..255 of our vocabularies, as in GPT-2."""

_CHARACTER = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + i) for i, byte in enumerate(_OTHERS)
}
_BYTE = {character: byte for byte, character in _CHARACTER.items()}


def to_characters(data: bytes) -> str:
    """Return one printable character for each byte of `data`."""
    return "".join(map(_CHARACTER.__getitem__, data))


def from_characters(text: str) -> bytes | None:
    """Return the bytes that `text` stands for, or None if it holds a character of no byte."""
    try:
        return bytes(map(_BYTE.__getitem__, text))
    except KeyError:
        return None


def byte_token(byte: int) -> str:
    """Return the name of a byte where characters are the symbols: `<0x0A>` for a line end."""
    return f"<0x{byte:02X}>"
