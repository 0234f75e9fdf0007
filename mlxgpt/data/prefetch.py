"""Items -> results, in their order, computed by threads a little ahead of whoever takes them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

from mlxgpt.config import require

A = TypeVar("A")
R = TypeVar("R")


class Prefetcher(Generic[A, R], Iterator[R]):
    """An iterator over `function(item)` of which the next `ahead` results are ready or in work.

    Items are taken in the caller's thread, `function` runs in `workers` threads; the results come
    in the order of the items, so a `function` without a state gives the same ones for any number of
    threads. Threads pay off where `function` releases the GIL, or where the caller waits for a
    device.

    An exception in `function` or in `items` is raised to the caller when the results before it have
    been taken; it ends the threads. So does the end of the `with` block, in whatever way it comes.
    No thread ever waits for the caller: there is no queue that could be full.
    """

    def __init__(
        self, function: Callable[[A], R], items: Iterable[A], *, workers: int = 1, ahead: int = 2
    ) -> None:
        """Begin with the first items at once."""
        require(workers >= 1, f"'workers' must be at least 1, got {workers}")
        require(ahead >= 1, f"'ahead' must be at least 1, got {ahead}")
        self._function = function
        self._items = iter(items)
        self._ahead = max(ahead, workers)
        self._waiting: deque[Future[R]] = deque()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="mlxgpt-prefetch")
        self._closed = False
        self._fill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> R:
        if self._closed:
            raise RuntimeError("this prefetcher is closed")
        if not self._waiting:
            self._threads.shutdown()
            raise StopIteration
        try:
            result = self._waiting.popleft().result()
            self._fill()
        except BaseException:  # Ctrl-C in the waiting caller, too
            self.close()
            raise
        return result

    def close(self) -> None:
        """End the threads: what is in work is finished and thrown away, the rest is not begun."""
        self._closed = True
        self._waiting.clear()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        try:
            while len(self._waiting) < self._ahead:
                item = next(self._items)
                self._waiting.append(self._threads.submit(self._function, item))
        except StopIteration:
            pass
        except Exception as e:
            failed: Future[R] = Future()
            failed.set_exception(e)
            self._waiting.append(failed)
            self._items = iter(())
        except BaseException:
            self.close()
            raise
