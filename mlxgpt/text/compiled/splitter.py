"""Text -> the ends of its words in bytes: by the kernel if it knows the rule, else from a list."""

from collections.abc import Iterator, Sequence

import numpy as np

from mlxgpt.text.compiled.char_classes import class_table
from mlxgpt.text.compiled.split_kernel import split_words
from mlxgpt.text.compiled.split_rules import SplitRule, border_table


def word_ends(
    padded: np.ndarray, stop: int, rule: SplitRule, room: int, buffer: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """Yield the ends of the words of padded[:stop], int64, at most `room` at a time.

    `padded` comes from `loads.pad`. All pieces share one buffer, int64 (room + 2,) if it is given:
    use each before the next.
    """
    if buffer is None:
        buffer = np.empty(min(room, stop) + 2, np.int64)
    tables = (border_table(rule), *class_table())
    start = 0
    while start < stop:
        limit = min(stop, start + buffer.size - 2)
        count = split_words(padded, start, limit, stop, *rule, *tables, buffer)
        if limit == stop:
            buffer[count] = stop
            yield buffer[1 : count + 1]
            return
        if count > 2:  # the last two are not final
            start = int(buffer[count - 2])
            yield buffer[1 : count - 1]
        else:  # a very long word
            buffer = np.empty(2 * buffer.size, np.int64)


def ends_in_stretches(padded: np.ndarray, stops: Sequence[int], rule: SplitRule) -> np.ndarray:
    """Return the ends of the words, int64, of stretches that end at `stops`, each split alone.

    `padded` comes from `loads.pad`; the stretches are not empty.
    """
    tables = (border_table(rule), *class_table())
    begins = np.empty(stops[-1] + 2, np.int64)
    start = count = 0
    for stop in stops:
        count += split_words(padded, start, stop, stop, *rule, *tables, begins[count:])
        start = stop
    begins[count] = start
    return begins[1 : count + 1]


def ends_of_words(words: Sequence[str], data: bytes) -> np.ndarray:
    """Return the ends in bytes, int64 (len(words),), of words that make up `data`, their UTF-8."""
    ends = np.cumsum(np.fromiter(map(len, words), np.int64, len(words)))
    if len(words) == 0 or ends[-1] == len(data):
        return ends
    content = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero((content & 0xC0) != 0x80)  # character -> its first byte
    return np.append(starts, len(data))[ends]
