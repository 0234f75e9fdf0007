"""Word -> what is known of it, remembered: most words of a text have been seen before."""

from collections.abc import Callable
from typing import Generic, TypeVar, final

Value = TypeVar("Value")

LONGEST_CACHED = 64
"""Characters of a word up to which it is remembered."""


@final
class WordCache(dict[str, Value], Generic[Value]):
    """A dict that asks `find` for what it lacks; the look-up of a known word is all in C.

    Memory is bounded: long words are not kept, and when it is full it starts anew.
    """

    def __init__(self, find: Callable[[str], Value], *, most_words: int = 1 << 17) -> None:
        super().__init__()
        self._find = find
        self._most_words = most_words

    def __missing__(self, word: str) -> Value:
        value = self._find(word)
        if len(word) <= LONGEST_CACHED:
            if len(self) >= self._most_words:
                self.clear()
            self[word] = value
        return value
