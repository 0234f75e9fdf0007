"""Texts that wait to run, in order of arrival, and which of them come in next. No MLX."""

from bisect import insort
from collections.abc import Iterator, Mapping

from mlxgpt.infer.engine.room import Room
from mlxgpt.infer.engine.sequence import Sequence


class Queue:
    """Who is not running: new texts, and those that were preempted, in the order they came.

    A text that begins like one being computed just now follows it, so that the beginning is
    computed once; others may pass it. Only who came earlier is followed: nobody waits in a circle,
    and each beginning is complete after some steps.
    """

    def __init__(self, room: Room, block_size: int) -> None:
        self._room = room
        self._block_size = block_size
        self._texts: list[Sequence] = []
        self._followed: dict[Sequence, tuple[Sequence, int]] = {}
        """For some that wait: whom they follow, and how many tokens the two have in common."""

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, text: object) -> bool:
        return text in self._texts

    def __iter__(self) -> Iterator[Sequence]:
        """Yield the texts in order of arrival."""
        return iter(self._texts)

    def put(self, text: Sequence) -> None:
        """Let a text wait, at its place in the order of arrival."""
        insort(self._texts, text, key=lambda t: t.arrival)

    def remove(self, text: Sequence) -> None:
        """Let a text go."""
        self._texts.remove(text)
        self._followed.pop(text, None)

    def coming_in(
        self, running: list[Sequence], started: Mapping[Sequence, int]
    ) -> Iterator[Sequence]:
        """Yield the texts that there are blocks for, each taken out, what is known of it in its
        table. Whoever asks for the next one has added the one before to `running`.

        `started` says of those that are computed in this step how many tokens they had before it.
        """
        computed = {text: started.get(text, text.table.length) for text in running}
        for text in list(self._texts):
            if self._still_follows(text, computed):
                continue
            self._room.recall(text)
            if self._begins_to_follow(text, computed):
                self._room.release(text)
                continue
            if not self._room.has_for(text, running):
                self._room.release(text)
                return  # whoever comes later does not overtake
            self.remove(text)
            computed[text] = text.table.length
            yield text

    def _still_follows(self, text: Sequence, computed: Mapping[Sequence, int]) -> bool:
        """Whether the one that a text was seen to follow still has to compute what they share."""
        if text not in self._followed:
            return False
        ahead, shared = self._followed[text]
        if ahead.indexed is not None and computed.get(ahead, shared) < shared:
            return True
        del self._followed[text]
        return False

    def _begins_to_follow(self, text: Sequence, computed: Mapping[Sequence, int]) -> bool:
        """Whether a running text will compute the block that comes after the known ones of a text,
        which are in its table. Remembers it."""
        size = self._block_size
        wanted = text.table.length + size
        if not self._room.sharing or wanted >= len(text.token_ids):
            return False  # one token at least is computed anyway
        begin = text.token_ids[:wanted]
        for ahead, known in computed.items():
            if (
                ahead.arrival < text.arrival
                and ahead.indexed is not None
                and known < wanted
                and ahead.token_ids[:wanted] == begin
            ):
                most = min(len(ahead.token_ids), len(text.token_ids) - 1)
                self._followed[text] = ahead, _agreeing(ahead, text, most) // size * size
                return True
        return False


def _agreeing(one: Sequence, other: Sequence, most: int) -> int:
    """Return how many of the first `most` tokens agree, from the first on."""
    for place in range(most):
        if one.token_ids[place] != other.token_ids[place]:
            return place
    return most
