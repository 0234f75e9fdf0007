"""Stretches of text -> counted words, by several threads; the number of threads changes nothing."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from mlxgpt.text.compiled.counted_words import CountedWords
from mlxgpt.text.compiled.split_rules import SplitRule
from mlxgpt.text.compiled.word_counter import WordCounter

_BATCH = 1 << 20
"""Characters that a thread is given at once."""


def count_stretches(stretches: Iterable[str], rule: SplitRule, threads: int = 1) -> CountedWords:
    """Count the words of all stretches; they are read by the calling thread, as needed."""
    if threads == 1:
        counter = WordCounter(rule)
        for stretch in stretches:
            counter.add(stretch)
        return counter.words()
    counters = [WordCounter(rule) for _ in range(threads)]
    idle: SimpleQueue[WordCounter] = SimpleQueue()
    for counter in counters:
        idle.put(counter)

    def count(batch: list[str]) -> None:
        counter = idle.get()
        try:
            for stretch in batch:
                counter.add(stretch)
        finally:
            idle.put(counter)

    running: deque[Future[None]] = deque()
    with ThreadPoolExecutor(threads, "count-words") as pool:
        for batch in _batches(stretches):
            running.append(pool.submit(count, batch))
            if len(running) > 2 * threads:
                running.popleft().result()
        while running:
            running.popleft().result()
    first, *others = counters
    for other in others:
        first.include(other.words())
    return first.words()


def _batches(stretches: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for stretch in stretches:
        batch.append(stretch)
        size += len(stretch)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
