"""Ids one at a time -> text as soon as it is certain; half a character waits for its other half."""

import codecs
from collections.abc import Callable, Collection, Sequence
from typing import Protocol, final

_LONGEST_WAIT = 64
"""Ids that may wait for their character to become complete: more have no text to come."""


class OneText(Protocol):
    """Decodes the ids of one text, all of them known to be in the vocabulary."""

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id."""
        ...

    def finish(self) -> str:
        """Return what is left."""
        ...


@final
class StreamDecoder:
    """Decodes ids as they are generated: all pieces together are `decode` of all ids."""

    def __init__(
        self,
        begin: Callable[[], OneText],
        check: Callable[[int], int],
        skipped: Collection[int] = (),
    ) -> None:
        """`begin` makes the decoder of a text; `check` refuses ids that are not in the vocabulary;
        `skipped` ids have no text.
        """
        self._begin = begin
        self._check = check
        self._skipped = skipped
        self._text = begin()

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id, which may be empty.

        Raises `TokenizerError` for an id that is not in the vocabulary.
        """
        checked = self._check(token_id)
        return "" if checked in self._skipped else self._text.push(checked)

    def finish(self) -> str:
        """Return what is left, U+FFFD for half a character, and be ready for another text."""
        rest = self._text.finish()
        self._text = self._begin()
        return rest


@final
class ByteStreamDecoder:
    """One text whose ids have bytes of their own."""

    def __init__(
        self,
        piece: Callable[[int], bytes],
        *,
        first: Callable[[int], bytes] | None,
        stripped: bytes,
        most_stripped: int,
    ) -> None:
        """`piece` gives the bytes of an id, `first` those of the first one if they may differ.

        At the start of the text the bytes `stripped` are left out up to `most_stripped` times.
        """
        self._piece = piece
        self._first = first
        self._stripped = stripped
        self._left_to_strip = most_stripped
        self._at_start = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id."""
        data = (self._first or self._piece)(token_id)
        self._first = None
        return self._decoder.decode(self._without_start(data) if self._left_to_strip else data)

    def finish(self) -> str:
        """Return what is left, U+FFFD for half a character."""
        return self._decoder.decode(self._at_start, final=True)

    def _without_start(self, data: bytes) -> bytes:
        data = self._at_start + data
        while self._left_to_strip and data.startswith(self._stripped):
            data = data.removeprefix(self._stripped)
            self._left_to_strip -= 1
        if self._left_to_strip and self._stripped.startswith(data):
            self._at_start = data  # perhaps the beginning of one more
            return b""
        self._left_to_strip, self._at_start = 0, b""
        return data


@final
class TextStreamDecoder:
    """One text whose ids have no bytes of their own: what a new one adds to the last ones decoded.

    A token that depends on its neighbour sees it, since those that gave the last text stay.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        """`decode` gives the text of a list of ids."""
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0
        """How many of the ids have given their text."""
        self._so_far = ""
        """The text of those."""

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id."""
        self._ids.append(token_id)
        text = self._decode(self._ids)
        waiting = text.endswith("\ufffd") and len(self._ids) - self._shown < _LONGEST_WAIT
        if waiting or not text.startswith(self._so_far):
            return ""
        return self._show(text)

    def finish(self) -> str:
        """Return what is left."""
        return self._show(self._decode(self._ids))

    def _show(self, text: str) -> str:
        new = text[len(self._so_far) :]
        last = self._decode(self._ids[self._shown :])
        if last and not last[0].isspace():
            # What is special at the start of a text has no effect on these any more.
            del self._ids[: self._shown]
            text = last
        self._so_far = text
        self._shown = len(self._ids)
        return new
