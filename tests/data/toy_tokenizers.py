"""Tokenizers simple enough to predict every id; at top level, so that other processes find them."""

import hashlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mlxgpt.errors import TokenizerError
from mlxgpt.seeding import derive


@dataclass(frozen=True)
class ByteTokenizer:
    """One id a byte, and 256 for the end of text."""

    vocab_size: int = 257
    eot_id: int | None = 256
    kind = "byte"
    supports_dropout = False
    no_dropout_reason: ClassVar[str | None] = "it is a toy"

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()

    @property
    def token_byte_lengths(self) -> np.ndarray:
        lengths = np.ones(self.vocab_size, dtype=np.int64)
        if self.eot_id is not None:
            lengths[self.eot_id] = 0
        return lengths

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_array(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> np.ndarray:
        assert dropout == 0
        return np.array(self.encode(text), dtype=np.int32)

    def use_compiled(self, num_bytes: int, notice: Callable[[str], None]) -> bool:
        return False


@dataclass(frozen=True)
class CodePointTokenizer(ByteTokenizer):
    """One id a code point."""

    vocab_size: int = 70_001
    eot_id: int | None = 0

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]


@dataclass(frozen=True)
class RefusingTokenizer(ByteTokenizer):
    """Refuses texts with "bad" in them, breaks on "broken", and dies on "deadly"."""

    def encode(self, text: str) -> list[int]:
        if "bad" in text:
            raise TokenizerError("this word is not allowed")
        if "broken" in text:
            raise KeyError("oh")
        if "deadly" in text:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode(text)


@dataclass(frozen=True)
class TalkingTokenizer(ByteTokenizer):
    """Prints while it works."""

    def encode(self, text: str) -> list[int]:
        print("hello", flush=True)
        return super().encode(text)


@dataclass(frozen=True)
class SlowTokenizer(ByteTokenizer):
    """Takes its time, and leaves the numbers of its process and process group in a folder."""

    folder: str = "."

    def encode(self, text: str) -> list[int]:
        with open(os.path.join(self.folder, str(os.getpid())), "w") as file:
            file.write(str(os.getpgid(0)))
        time.sleep(0.2)
        return super().encode(text)


@dataclass(frozen=True)
class PairTokenizer(ByteTokenizer):
    """One id for two small letters of a word, one a byte for the rest; dropout splits such pairs.

    What happens to a pair depends on the seed and on where its word begins, as in a real one.
    """

    vocab_size: int = 256 + 26 * 26 + 1
    eot_id: int | None = 256 + 26 * 26
    supports_dropout = True

    @property
    def token_byte_lengths(self) -> np.ndarray:
        lengths = np.full(self.vocab_size, 2, dtype=np.int64)
        lengths[:256] = 1
        lengths[256 + 26 * 26 :] = 0
        return lengths

    def encode(self, text: str) -> list[int]:
        return self.encode_array(text).tolist()

    def encode_array(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> np.ndarray:
        ids: list[int] = []
        for word in re.finditer(rb" ?[^ ]+| +", text.encode()):
            ids += self._encode_word(word[0], word.start(), dropout, seed)
        return np.array(ids, dtype=np.int32)

    def _encode_word(self, word: bytes, position: int, dropout: float, seed: int) -> list[int]:
        ids, at = [], 0
        while at < len(word):
            pair = word[at : at + 2]
            kept = dropout == 0 or derive(seed, "toy", position, at) >= dropout * 2**128
            if re.fullmatch(b"[a-z]{2}", pair) and kept:
                ids.append(256 + (pair[0] - 97) * 26 + pair[1] - 97)
                at += 2
            else:
                ids.append(word[at])
                at += 1
        return ids

    def spell(self, ids: np.ndarray) -> bytes:
        """Return the bytes of ids; an end of text is 0xFF, which is in no UTF-8."""
        parts = []
        for i in ids.tolist():
            if i == self.eot_id:
                parts.append(b"\xff")
            else:
                parts.append(bytes([i] if i < 256 else [97 + (i - 256) // 26, 97 + (i - 256) % 26]))
        return b"".join(parts)
