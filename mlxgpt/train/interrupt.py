"""Ctrl-C and SIGTERM -> a flag that the step loop looks at, so that a step is never torn."""

import signal
from types import FrameType, TracebackType


class StopRequest:
    """While entered, a first signal asks for a stop after the current step; a second kills."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.requested = True
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
