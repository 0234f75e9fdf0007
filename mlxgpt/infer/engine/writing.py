"""The tokens chosen for a text -> those that count, their text, and whether it ends there."""

from collections.abc import Collection, Sequence

from mlxgpt.infer.engine.completion import TextDecoder
from mlxgpt.infer.engine.sequence import FinishReason
from mlxgpt.infer.sampling import SamplingParams, StopText


class Writing:
    """Follows one text as it is written; the same for one token a step or many."""

    def __init__(
        self, params: SamplingParams, stop_ids: Collection[int], decoder: TextDecoder | None
    ) -> None:
        self._left = params.max_tokens
        self._stop_ids = frozenset(stop_ids) | params.stop_ids
        self._decoder = decoder
        self._stops = StopText(params.stop)
        self.finish_reason: FinishReason | None = None

    def take(self, token_ids: Sequence[int]) -> tuple[int, str]:
        """Go on with these tokens; return how many of them count, and the text to show."""
        assert self.finish_reason is None
        shown = []
        for count, token in enumerate(token_ids, start=1):
            self._left -= 1
            if token in self._stop_ids:
                self.finish_reason = "stop"
            elif self._decoder is not None:
                shown.append(self._stops.push(self._decoder.push(token)))
                if self._stops.stopped:
                    self.finish_reason = "stop"
                    return count, "".join(shown)
            if self.finish_reason is None and self._left <= 0:
                self.finish_reason = "length"
            if self.finish_reason is not None:
                shown.append(self.finish())
                return count, "".join(shown)
        return len(token_ids), "".join(shown)

    def finish(self) -> str:
        """Return the text that was held back."""
        if self._decoder is None:
            return ""
        rest = self._stops.push(self._decoder.finish())
        if self._stops.stopped:
            self.finish_reason = "stop"
            return rest
        return rest + self._stops.finish()
