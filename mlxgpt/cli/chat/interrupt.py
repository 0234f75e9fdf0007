"""Ctrl-C during an answer -> a flag that is looked at between two steps, so that none is torn."""

import signal
import threading
from types import FrameType, TracebackType


class StopAnswer:
    """While entered, a first Ctrl-C asks for the end of the answer; a second acts as usual."""

    def __init__(self, hold: bool = True) -> None:
        """Without `hold` it changes nothing, and every Ctrl-C acts as usual."""
        self.requested = False
        self._hold = hold
        self._usual: object = None
        self._held = False

    def __enter__(self) -> "StopAnswer":
        self._usual = signal.getsignal(signal.SIGINT)
        # Only the main thread may set one; what is no function ignores Ctrl-C, or is not Python's.
        main = threading.current_thread() is threading.main_thread()
        self._held = self._hold and main and callable(self._usual)
        if self._held:
            signal.signal(signal.SIGINT, self._handle)
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

    def _restore(self) -> None:
        if self._held:
            self._held = False
            signal.signal(signal.SIGINT, self._usual)  # type: ignore[arg-type]
