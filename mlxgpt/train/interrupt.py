"""Ctrl-C, SIGTERM, SIGHUP -> a flag that the step loop looks at, so that no step is torn."""

import signal
from collections.abc import Callable
from types import FrameType, TracebackType


class StopRequest:
    """While entered, a first signal asks for a stop after the current step; a second acts as usual.

    "As usual" rather than at once, so that Ctrl-C still leaves the terminal as it was found.
    """

    def __init__(self, acknowledge: Callable[[], None] = lambda: None) -> None:
        """`acknowledge` is called at the first signal: a step may take a while."""
        self._acknowledge = acknowledge
        self.requested = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.requested = True
        self._restore()
        self._acknowledge()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
