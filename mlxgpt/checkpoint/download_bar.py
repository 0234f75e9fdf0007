"""How many bytes came so far -> one line in a terminal, which is gone when all are there.

huggingface_hub downloads in several threads, which know nothing of a Ctrl-C; it reaches them here,
where they count.
"""

import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tqdm.auto import tqdm

_FORMAT = (
    "{desc} {percentage:3.0f} % |{bar}| {n_fmt}B of {total_fmt}B, {remaining} left, {rate_fmt}"
)
_SECONDS = 0.5
"""What is over sooner is not shown at all."""


class _Stopped(BaseException):
    """Ends a thread that downloads."""


@contextmanager
def download_bar(what: str) -> Iterator[type[tqdm]]:
    """Give a class of bars to huggingface_hub, which makes several that tell the same.

    The one that counts bytes on the disk is shown, under the name of `what`; all are closed at the
    end. Without a terminal there is none. Meanwhile that library writes no warnings of its own
    (about connections that it takes up again) into the line.
    """
    made: list[tqdm] = []
    stopped = threading.Event()

    class Bar(tqdm):
        def __init__(self, *args: Any, **settings: Any) -> None:
            counts_bytes = settings.get("unit") == "B"
            twice = str(settings.get("desc")).startswith("Downloading bytes")
            settings |= {
                "desc": f"downloading {what}",
                "bar_format": _FORMAT,
                "disable": None if counts_bytes and not twice else True,  # None: by the terminal
                "file": sys.stderr,
                "leave": False,
                "delay": _SECONDS,
                "dynamic_ncols": True,
            }
            super().__init__(*args, **settings)
            made.append(self)

        def update(self, n: float | None = 1) -> bool | None:
            if stopped.is_set() and threading.current_thread() is not threading.main_thread():
                raise _Stopped
            return super().update(n)

        def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
            """Keep ours."""

        def set_description_str(self, desc: str | None = None, refresh: bool | None = True) -> None:
            """Keep ours."""

    try:
        with _interrupt_sets(stopped), _quiet("huggingface_hub"):
            yield Bar
    finally:
        for bar in made:
            bar.close()


@contextmanager
def _interrupt_sets(event: threading.Event) -> Iterator[None]:
    """Let Ctrl-C set `event`, and do what it did before."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield  # other threads have no say in signals; None: not Python's to give back
        return

    def interrupted(number: int, frame: FrameType | None) -> None:
        event.set()
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGINT, interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
