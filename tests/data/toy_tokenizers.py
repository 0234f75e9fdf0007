"""Tokenizers simple enough to predict every id; at top level, so that other processes find them."""

import hashlib
import os
import signal
import time
from dataclasses import dataclass

import numpy as np

from mlxgpt.errors import TokenizerError


@dataclass(frozen=True)
class ByteTokenizer:
    """One id a byte, and 256 for the end of text."""

    vocab_size: int = 257
    eot_id: int | None = 256

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
