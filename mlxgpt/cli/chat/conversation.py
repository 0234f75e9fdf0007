"""Questions and answers so far -> the messages for the next answer, as far as the model can see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """A question and what was answered."""

    question: str
    answer: str


class Conversation:
    """A system message, or none, and the turns after it. Turns that were left out stay known."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self._turns: list[Turn] = []
        self._left_out = 0

    @property
    def turns(self) -> Sequence[Turn]:
        """All of them, the oldest first."""
        return tuple(self._turns)

    @property
    def left_out(self) -> int:
        """How many of the oldest the model is not given any more."""
        return self._left_out

    def record(self, question: str, answer: str) -> None:
        """Add a turn."""
        self._turns.append(Turn(question, answer))

    def undo(self) -> Turn | None:
        """Forget the last turn and return it; None if there is none."""
        if not self._turns:
            return None
        self._left_out = min(self._left_out, len(self._turns) - 1)
        return self._turns.pop()

    def reset(self) -> None:
        """Forget all turns, not the system message."""
        self._turns.clear()
        self._left_out = 0

    def messages(self, question: str) -> list[dict[str, str]]:
        """Return the messages whose answer is due, without the turns that are left out."""
        messages = [] if self.system is None else [_message("system", self.system)]
        for turn in self._turns[self._left_out :]:
            messages += [_message("user", turn.question), _message("assistant", turn.answer)]
        return [*messages, _message("user", question)]

    def ids(
        self,
        question: str,
        encode: Callable[[list[dict[str, str]]], list[int]],
        most: int | None,
    ) -> list[int]:
        """Return the ids of those messages, at most `most` of them if that can be had by leaving
        out the oldest turns; what is left out stays so."""
        before = self._left_out
        try:
            ids = encode(self.messages(question))
            while most is not None and len(ids) > most and self._left_out < len(self._turns):
                self._left_out += 1
                ids = encode(self.messages(question))
        except BaseException:
            self._left_out = before
            raise
        return ids


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
