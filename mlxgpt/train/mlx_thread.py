"""Functions -> their results, from a thread that may use MLX and leaves nothing of it behind.

A thread owns the MLX streams that it used. Python takes it for ended while its C++ side still
destroys those, and a process that leaves at that moment is aborted ("terminate called", seen with
MLX 0.32.4). So the thread destroys them itself before it ends, and it is ended before the process.
"""

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

import mlx.core as mx

T = TypeVar("T")
_Jobs = SimpleQueue[Callable[[], None] | None]


class MLXThread:
    """Runs what it is given, one after the other; it starts with the first of it."""

    def __init__(self, name: str) -> None:
        self._jobs: _Jobs = SimpleQueue()
        # A daemon, since others are waited for at exit before anyone can tell them to end.
        self._thread = Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        self._end = weakref.finalize(self, _end, self._jobs, self._thread)

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call `function` in the thread; the future holds its result or its exception."""
        future: Future[T] = Future()

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as e:
                future.set_exception(e)

        if self._thread.ident is None:
            self._thread.start()
        self._jobs.put(job)
        return future

    def close(self) -> None:
        """End the thread, after what it has been given. Happens at exit, too."""
        self._end()


def _work(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds arrays
    mx.clear_streams()


def _end(jobs: _Jobs, thread: Thread) -> None:
    if thread.is_alive():
        jobs.put(None)
        thread.join()
