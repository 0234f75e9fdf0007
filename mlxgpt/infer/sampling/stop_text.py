"""Text as it comes, piece by piece -> text that may be shown, up to a stop string. No MLX."""

from collections.abc import Sequence


class StopText:
    """Lets text through until one of the stop strings is complete, and nothing from there on.

    What counts is the string that is complete first, whatever the pieces; of several that end with
    the same character the longest. Neither it nor what follows is given out; what may be the
    beginning of one is held back until it is known.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        assert all(self._stops), "an empty stop string"
        self._held = ""
        self._longest = max(map(len, self._stops), default=0)
        self.stopped = False
        """Whether a stop string has occurred."""

    def push(self, text: str) -> str:
        """Return what may be shown now; after a stop string that is nothing."""
        if self.stopped or not self._stops:
            return "" if self.stopped else text
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        safe = len(text) - self._begun(text)
        self._held = text[safe:]
        return text[:safe]

    def finish(self) -> str:
        """Return what was held back: no more text comes."""
        rest, self._held = self._held, ""
        return rest

    def _begun(self, text: str) -> int:
        """Return how many characters at the end of `text` may be the beginning of a stop string."""
        for count in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-count:]
            if any(stop.startswith(end) for stop in self._stops):
                return count
        return 0
