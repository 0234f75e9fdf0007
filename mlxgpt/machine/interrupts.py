"""Ctrl-C -> the same a little later, where an exception would do harm."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait until the end of the block; a second one does not.

    For work of others in which an exception is lost, or leaves things in disorder.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or usual is None:
        yield  # exceptions of signals only reach the main thread; None: not Python's to hold
        return
    held = False

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal held
        if held and callable(usual):
            usual(number, frame)
        held = True

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if held:
            signal.raise_signal(signal.SIGINT)
