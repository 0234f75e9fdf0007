"""What BPE-dropout does to a word: the law of the paper in full, and what other programs do.

The law is computed, not sampled: the parts that a word has in some step say all about what may come
next, so the probabilities of all ends follow by recursion.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import heappop, heappush

import naive_bpe

Parts = tuple[bytes, ...]
Law = Mapping[Parts, float]
Ranks = Mapping[tuple[bytes, bytes], int]
Bit = Callable[[], bool]

TOO_MUCH = 4.75


def law_of_paper(symbols: Sequence[bytes], ranks: Ranks, p: float) -> Law:
    """Provilkov et al. 2020, algorithm 1: the best merge that is not dropped is applied."""

    @cache
    def ends(parts: Parts) -> Law:
        law: Counter[Parts] = Counter()
        better_dropped = 1.0
        for _, i in naive_bpe.possible_merges(parts, ranks):
            merged = (*parts[:i], parts[i] + parts[i + 1], *parts[i + 2 :])
            for end, probability in ends(merged).items():
                law[end] += better_dropped * (1 - p) * probability
            better_dropped *= p
        law[parts] += better_dropped
        return law

    return ends(tuple(symbols))


def surprise(sample: Counter[Parts], law: Law) -> float:
    """How many standard deviations a sample is from the law: chi-square, rare ends together.

    The cube root of chi-square is nearly normal (Wilson and Hilferty 1931). A sample of the law is
    above `TOO_MUCH` once in a million times.
    """
    n = sample.total()
    if any(law.get(end, 0) == 0 for end in sample):
        return math.inf
    cells: list[tuple[float, float]] = []
    seen, expected = 0.0, 0.0
    for end in sorted(law, key=lambda end: -law[end]):
        seen, expected = seen + sample[end], expected + n * law[end]
        if expected >= 10:
            cells.append((seen, expected))
            seen, expected = 0.0, 0.0
    if expected >= 1:
        cells.append((seen, expected))
    freedom = len(cells) - 1
    chi_square = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    spread = 2 / (9 * freedom)
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def merge_all_occurrences(symbols: Sequence[bytes], ranks: Ranks, dropped: Bit) -> Parts:
    """As subword-nmt: every possible merge has its bit, all kept places of the best pair join."""
    parts = list(symbols)
    while True:
        kept = [merge for merge in naive_bpe.possible_merges(parts, ranks) if not dropped()]
        if not kept:
            return tuple(parts)
        places = {i for rank, i in kept if rank == min(kept)[0]}
        joined: list[bytes] = []
        i = 0
        while i < len(parts):
            wide = 2 if i in places else 1
            joined.append(b"".join(parts[i : i + wide]))
            i += wide
        parts = joined


def drop_for_good(symbols: Sequence[bytes], ranks: Ranks, dropped: Bit) -> Parts:
    """As sentencepiece: a dropped candidate never comes back."""
    return _by_queue(symbols, ranks, dropped, comes_back=False, outdated_takes_bit=False)


def stale_queue(symbols: Sequence[bytes], ranks: Ranks, dropped: Bit) -> Parts:
    """As `tokenizers`: also an outdated candidate takes a bit, and lets the dropped ones return."""
    return _by_queue(symbols, ranks, dropped, comes_back=True, outdated_takes_bit=True)


def _by_queue(
    symbols: Sequence[bytes],
    ranks: Ranks,
    dropped: Bit,
    *,
    comes_back: bool,
    outdated_takes_bit: bool,
) -> Parts:
    parts = dict(enumerate(symbols))
    queue: list[tuple[int, int, bytes]] = []

    def push(left: int, right: int) -> None:
        rank = ranks.get((parts.get(left, b""), parts.get(right, b"")))
        if rank is not None:
            heappush(queue, (rank, left, parts[left] + parts[right]))

    def after(i: int) -> int:
        return min((j for j in parts if j > i), default=-1)

    for i in range(len(symbols) - 1):
        push(i, i + 1)
    waiting: list[tuple[int, int, bytes]] = []
    while queue:
        candidate = heappop(queue)
        rank, left, product = candidate
        right = after(left)
        outdated = ranks.get((parts.get(left, b""), parts.get(right, b""))) != rank
        if outdated and not outdated_takes_bit:
            continue
        if dropped():
            if comes_back:
                waiting.append(candidate)
            continue
        for candidate in waiting:
            heappush(queue, candidate)
        waiting.clear()
        if outdated:
            continue
        parts[left] = product
        del parts[right]
        push(max((j for j in parts if j < left), default=-1), left)
        push(left, after(left))
    return tuple(parts[i] for i in sorted(parts))
