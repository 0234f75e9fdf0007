"""Tokens -> the bytes of text that they stand for: the decoders of a tokenizer.json.

Each token has bytes of its own, whatever stands beside it, so that a stream can be decoded as it
comes; only the very first token, and the start of the whole text, may be treated apart. Decoders
that cannot be told in this way are left to the library.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from mlxgpt.text.pipeline.normalizers import Replace
from mlxgpt.text.pipeline.pre_tokenizers import PrependScheme
from mlxgpt.text.pipeline.unsupported import Unsupported

_BYTE = re.compile("<0x([0-9a-fA-F]{2})>")


@dataclass(frozen=True)
class ByteLevel:
    """The tokens are bytes; together they are UTF-8."""

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": False,
        }


@dataclass(frozen=True)
class ByteFallback:
    """A token such as `<0x0A>` is one byte."""

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "ByteFallback"}


@dataclass(frozen=True)
class Fuse:
    """From here on the text is one piece."""

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Fuse"}


@dataclass(frozen=True)
class Strip:
    """Takes away up to `start` and `stop` of one character at the two ends of each piece."""

    content: str
    start: int
    stop: int

    def apply(self, piece: str) -> str:
        """Return the stripped piece."""
        begin = len(piece) - len(piece.lstrip(self.content))
        piece = piece[min(begin, self.start) :]
        end = len(piece) - len(piece.rstrip(self.content))
        return piece[: len(piece) - min(end, self.stop)]

    def apply_to_bytes(self, whole: bytes) -> bytes:
        """Return UTF-8 without what is stripped at its start."""
        content = self.content.encode("utf-8")
        left = self.start
        while left and whole.startswith(content):
            whole = whole[len(content) :]
            left -= 1
        return whole

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"type": "Strip", "content": self.content, "start": self.start, "stop": self.stop}


@dataclass(frozen=True)
class Metaspace:
    """Writes spaces for the replacement, but none in the first token if one was put there."""

    replacement: str
    prepend_scheme: PrependScheme
    cut: bool

    def apply(self, piece: str, *, first: bool) -> str:
        """Return the piece with spaces."""
        gone = first and self.prepend_scheme != "never"
        return piece.replace(self.replacement, "" if gone else " ")

    def to_json(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {
            "type": "Metaspace",
            "replacement": self.replacement,
            "prepend_scheme": self.prepend_scheme,
            "split": self.cut,
        }


Step = ByteLevel | ByteFallback | Fuse | Strip | Metaspace | Replace


@final
class Decoder:
    """The steps of a file in a row."""

    def __init__(self, steps: Sequence[Step]) -> None:
        """Take the steps; `Unsupported` if bytes of single tokens do not tell what they do."""
        self.steps = tuple(steps)
        whole = next(
            (n for n, step in enumerate(self.steps) if isinstance(step, Fuse | ByteLevel)), None
        )
        each = self.steps if whole is None else self.steps[:whole]
        rest = () if whole is None else self.steps[whole + 1 :]
        fallbacks = [n for n, step in enumerate(each) if isinstance(step, ByteFallback)]
        if fallbacks and fallbacks != [len(each) - 1]:
            raise Unsupported("decoder with steps between ByteFallback and Fuse")
        self.byte_level = whole is not None and isinstance(self.steps[whole], ByteLevel)
        if self.byte_level and each:
            raise Unsupported("decoder with steps before ByteLevel")
        strips = [step for step in rest if not isinstance(step, Fuse)]
        if any(not isinstance(step, Strip) or step.stop for step in strips) or len(strips) > 1:
            raise Unsupported("decoder with steps after Fuse other than a Strip at the start")
        self._each = each
        self.stripped = strips[0] if strips and isinstance(strips[0], Strip) else None

    def __reduce__(self) -> tuple[object, ...]:
        return Decoder, (self.steps,)

    @property
    def first_is_apart(self) -> bool:
        """Whether the first token of a text may have other bytes than elsewhere."""
        return any(isinstance(step, Metaspace) for step in self._each)

    def piece(self, name: str, *, first: bool = False) -> bytes:
        """Return the bytes of text of the token that the file calls `name`."""
        for step in self._each:
            if isinstance(step, Metaspace):
                name = step.apply(name, first=first)
            elif isinstance(step, Replace | Strip):
                name = step.apply(name)
            elif isinstance(step, ByteFallback) and (byte := _BYTE.fullmatch(name)) is not None:
                return bytes([int(byte[1], 16)])
        return name.encode("utf-8")

    def to_json(self) -> dict[str, Any] | None:
        """Return it in the form of the file."""
        steps = [step.to_json() for step in self.steps]
        # mlx-lm knows ByteLevel only at top level: inside a Sequence it decodes slowly.
        if len(steps) > 1:
            return {"type": "Sequence", "decoders": steps}
        return steps[0] if steps else None
