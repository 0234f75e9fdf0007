"""Results a little ahead, in order, from any number of threads; and no thread is ever left."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from mlxgpt.data import Prefetcher
from mlxgpt.errors import ConfigError, DataError


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("mlxgpt-prefetch")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    assert alive() == []
    yield
    assert alive() == []


def square(item: int) -> int:
    time.sleep(0.002 * (item % 3))  # the later ones are often done earlier
    return item * item


@pytest.mark.parametrize("workers", [1, 2, 8])
@pytest.mark.parametrize("ahead", [1, 3, 50])
def test_results_come_in_the_order_of_the_items(workers: int, ahead: int) -> None:
    with Prefetcher(square, range(5, 30), workers=workers, ahead=ahead) as results:
        assert list(results) == [i * i for i in range(5, 30)]
        assert next(results, None) is None


def test_so_many_are_begun_ahead_and_no_more() -> None:
    begun: list[int] = []
    with Prefetcher(begun.append, range(100), workers=2, ahead=4) as results:
        for taken in range(1, 11):
            next(results)
            wait_for(lambda taken=taken: len(begun) == taken + 4)
    assert sorted(begun) == list(range(14))


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_threads_work_while_the_caller_does() -> None:
    """Each of two items waits until the other is begun, and both until the caller goes on."""
    meeting = threading.Barrier(3)
    with Prefetcher(lambda _: meeting.wait(10), range(2), workers=2) as results:
        meeting.wait(10)
        assert sorted(results) != []


def test_an_error_comes_when_its_turn_does_and_once() -> None:
    def fail(item: int) -> int:
        if item >= 3:
            raise DataError(f"item {item}")
        return item

    for workers in (1, 4):
        with Prefetcher(fail, range(100), workers=workers, ahead=8) as results:
            assert [next(results) for _ in range(3)] == [0, 1, 2]
            with pytest.raises(DataError, match="item 3"):
                next(results)
            assert alive() == []
            with pytest.raises(RuntimeError, match="closed"):
                next(results)


def test_an_error_in_the_items_comes_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield from range(3)
        raise DataError("no more")

    results = Prefetcher(square, items(), ahead=10)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(DataError, match="no more"):
        next(results)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_caller_that_fails_leaves_nothing(workers: int) -> None:
    begun: list[int] = []

    def slow(item: int) -> int:
        begun.append(item)
        time.sleep(0.02)
        return item

    results = Prefetcher(slow, range(1000), workers=workers, ahead=50)
    with pytest.raises(ZeroDivisionError), results:
        next(results)
        raise ZeroDivisionError
    assert alive() == []
    assert len(begun) <= 2 + 2 * workers


def test_one_that_is_forgotten_ends_by_itself() -> None:
    results = Prefetcher(square, range(1000), workers=2, ahead=8)
    next(results)
    assert alive()
    del results
    gc.collect()
    wait_for(lambda: alive() == [])


def test_closing_twice_or_before_the_first_result_does_no_harm() -> None:
    results = Prefetcher(square, range(9))
    results.close()
    results.close()
    with Prefetcher(square, ()) as none:
        assert list(none) == []


SCRIPT = """
import os, signal, sys, threading, time
from mlxgpt.data import Prefetcher

def work(item):
    if item == 200 and sys.argv[1] == "waiting":  # the caller is in `next` by then
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.3)
    return item

try:
    with Prefetcher(work, range(10**9), workers=2, ahead=64) as results:
        for item in results:
            if item == 100:
                os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("stopped", threading.active_count())
"""


@pytest.mark.parametrize("when", ["waiting", "working"])
def test_ctrl_c_ends_the_threads(when: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, when], capture_output=True, text=True, timeout=30
    )
    assert (done.returncode, done.stdout) == (0, "stopped 1\n"), done.stderr


def test_a_program_that_forgets_to_close_ends_all_the_same() -> None:
    code = (
        "from mlxgpt.data import Prefetcher\n"
        "results = Prefetcher(lambda i: i, iter(int, 1), workers=3, ahead=9)\n"
        "print(next(results))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_impossible_numbers_are_refused() -> None:
    for wrong in ({"workers": 0}, {"ahead": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Prefetcher(square, range(3), **wrong)
