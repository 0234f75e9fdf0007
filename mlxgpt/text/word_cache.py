"""Word -> its ids, remembered: most words of a text have been seen before."""

from collections.abc import Callable
from typing import final


@final
class WordCache(dict[str, tuple[int, ...]]):
    """A dict that asks `encode_word` for what it lacks; the look-up of a known word is all in C.

    Memory is bounded: very long words are not kept, and when it is full it starts anew.
    """

    def __init__(
        self,
        encode_word: Callable[[str], list[int]],
        *,
        most_words: int = 1 << 17,
        longest: int = 64,
    ) -> None:
        super().__init__()
        self._encode_word = encode_word
        self._most_words = most_words
        self._longest = longest

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = tuple(self._encode_word(word))
        if len(word) <= self._longest:
            if len(self) >= self._most_words:
                self.clear()
            self[word] = ids
        return ids
