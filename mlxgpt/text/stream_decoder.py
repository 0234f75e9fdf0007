"""Ids one at a time -> text as soon as it is certain; half a character waits for its other half."""

import codecs
from collections.abc import Callable, Sequence
from typing import final


@final
class StreamDecoder:
    """Decodes ids as they are generated: all pieces together are `decode` of all ids."""

    def __init__(self, bytes_of: Callable[[Sequence[int]], bytes]) -> None:
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the text that is complete with this id, which may be empty.

        Raises `TokenizerError` for an id that is not in the vocabulary.
        """
        return self._decoder.decode(self._bytes_of([token_id]))

    def finish(self) -> str:
        """Return what is left, U+FFFD for half a character, and be ready for another text."""
        return self._decoder.decode(b"", final=True)
