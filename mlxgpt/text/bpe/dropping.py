"""The ids of one word's symbols -> the ids after merges some of which are dropped at random.

Which ones are dropped comes from outside, as one bit for each candidate that is looked at, so that
the same functions serve the stream of `Dropout` and, in tests, any other bits. The rule is that of
Provilkov et al. 2020, algorithm 1: in each step the possible merges are looked at from the best on
(lowest rank, then leftmost), those that are dropped are passed over, and the first that is not is
applied. In the next step those passed over take part again. The word ends with a step in which all
are dropped, or in which there is nothing to merge.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, pairwise, repeat

from mlxgpt.text.bpe.dropout import LONGEST_GAP, Dropout
from mlxgpt.text.bpe.merging import NO_MERGE, MergeTable, product_of

LONG_WORD = 40
"""Ids from which on `drop_in_long_word` is the faster one; both give the same ids."""


def drops(dropout: Dropout, position: int) -> Iterator[bool]:
    """Yield for each candidate of the word at byte `position`, in turn, whether it is dropped."""
    rising = dropout.thresholds[:0:-1]
    for k in count():
        gap = LONGEST_GAP - bisect_right(rising, dropout.draw(position, k))
        yield from repeat(False, gap)
        if gap < LONGEST_GAP:
            yield True


def keeps_all(dropout: Dropout, position: int, n_merges: int) -> bool:
    """Return whether the first `n_merges` candidates of the word at `position` are all kept."""
    k = 0
    while n_merges > LONGEST_GAP:
        if dropout.draw(position, k) >= dropout.thresholds[LONGEST_GAP]:
            return False
        n_merges -= LONGEST_GAP
        k += 1
    return dropout.draw(position, k) < dropout.thresholds[n_merges]


def drop_and_merge(ids: Sequence[int], table: MergeTable, dropped: Iterator[bool]) -> list[int]:
    """Return `ids` after their merges, by whichever of the two ways is faster for their number."""
    if len(ids) < LONG_WORD:
        return drop_in_short_word(ids, table, dropped)
    return drop_in_long_word(ids, table, dropped)


def drop_in_short_word(ids: Sequence[int], table: MergeTable, dropped: Iterator[bool]) -> list[int]:
    """Merge by looking through the whole word for the best candidate each time: quadratic."""
    merged = list(ids)
    # known[i] belongs to the pair (merged[i], merged[i + 1]).
    known = [table[left].get(right, NO_MERGE) for left, right in pairwise(merged)]
    while True:
        candidates = known
        while (best := min(candidates, default=NO_MERGE)) != NO_MERGE:
            at = candidates.index(best)
            if not next(dropped):
                break
            if candidates is known:
                candidates = known.copy()
            candidates[at] = NO_MERGE
        else:
            return merged
        product = merged[at] = product_of(best)
        del merged[at + 1], known[at]
        if at > 0:
            known[at - 1] = table[merged[at - 1]].get(product, NO_MERGE)
        if at < len(known):
            known[at] = table[product].get(merged[at + 1], NO_MERGE)


def drop_in_long_word(ids: Sequence[int], table: MergeTable, dropped: Iterator[bool]) -> list[int]:
    """Merge over a linked list, with all candidates in a heap: n log n for a given rate.

    A candidate whose pair has changed while it waited is no candidate and takes no bit.
    """
    n = len(ids)
    merged = list(ids)
    following = list(range(1, n + 1))
    preceding = list(range(-1, n - 1))
    # rank << 32 | place: the smallest is the best candidate.
    candidates: list[int] = []
    for at, (left, right) in enumerate(pairwise(merged)):
        merge = table[left].get(right)
        if merge is not None:
            candidates.append(merge - product_of(merge) + at)
    heapify(candidates)
    passed_over: list[int] = []
    while candidates:
        candidate = heappop(candidates)
        at = candidate & 0xFFFFFFFF
        right = following[at]
        if merged[at] < 0 or right >= n:
            continue
        merge = table[merged[at]].get(merged[right], NO_MERGE)
        if merge >> 32 != candidate >> 32:
            continue
        if next(dropped):
            passed_over.append(candidate)
            continue
        merged[at], merged[right] = product_of(merge), -1
        after = following[at] = following[right]
        if after < n:
            preceding[after] = at
        for first, second in ((preceding[at], at), (at, after)):
            if first >= 0 and second < n:
                new = table[merged[first]].get(merged[second])
                if new is not None:
                    heappush(candidates, new - product_of(new) + first)
        for candidate in passed_over:
            heappush(candidates, candidate)
        passed_over.clear()
    return [token for token in merged if token >= 0]
