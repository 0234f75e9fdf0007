"""Guesses from the text itself: what followed the last time when its end stood there before."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mlxgpt.config import require
from mlxgpt.infer.speculative.proposer import Draft

if TYPE_CHECKING:
    from mlxgpt.infer.engine.sequence import Sequence


class _Index:
    """Where the short stretches of one text stand, as it grows."""

    def __init__(self, longest: int, shortest: int) -> None:
        self._sizes = range(shortest, longest + 1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._seen = 0

    def read(self, token_ids: list[int]) -> None:
        """Take in the tokens that are new; a stretch counts once a token has followed it."""
        for end in range(max(self._seen, 1), len(token_ids)):
            for size in self._sizes:
                if size > end:
                    break
                self._ends[tuple(token_ids[end - size : end])] = end
        self._seen = max(self._seen, len(token_ids))

    def match(self, token_ids: list[int]) -> int | None:
        """Return the place after the last earlier occurrence of the text's longest known ending."""
        for size in reversed(self._sizes):
            if size < len(token_ids):
                place = self._ends.get(tuple(token_ids[-size:]))
                if place is not None:
                    return place
        return None


class NGram:
    """Prompt lookup (Saxena, 2023): no second model, and no guess where nothing repeats.

    The longest ending of a text, of at most `longest` and at least `shortest` tokens, that occurs
    earlier in it is looked up, and its latest occurrence is continued. A continuation that reaches
    the end of the text starts again from its beginning, so a loop is guessed to any length. A new
    token costs the same at any length of the text. Raises `ConfigError` for sizes without meaning.
    """

    draws = False
    num_ids = None
    nbytes = 0

    def __init__(self, longest: int = 4, shortest: int = 2) -> None:
        require(shortest >= 1, f"'shortest' must be at least 1; got {shortest}")
        require(
            longest >= shortest,
            f"'longest' must be at least 'shortest' ({shortest}); got {longest}",
        )
        self._longest, self._shortest = longest, shortest
        self._indexes: dict[Sequence, _Index] = {}

    def propose(self, wanted: "Mapping[Sequence, int]") -> "dict[Sequence, Draft]":
        """Return as many guesses as are wanted, for the texts whose ending occurred before."""
        drafts = {}
        for sequence, count in wanted.items():
            index = self._indexes.get(sequence)
            if index is None:
                index = self._indexes[sequence] = _Index(self._longest, self._shortest)
            text = sequence.token_ids
            index.read(text)
            place = index.match(text) if count > 0 else None
            if place is not None:
                period = len(text) - place
                drafts[sequence] = Draft([text[place + i % period] for i in range(count)], None)
        return drafts

    def forget(self, sequence: "Sequence") -> None:
        self._indexes.pop(sequence, None)
