"""The ids of one word's bytes -> the ids after all merges; plain functions over one table.

The rule is that of Sennrich et al. 2016 (algorithm 1 applied to a new word): of all neighbouring
pairs take the one that was learned first, the leftmost of them if it occurs more than once, join
it, and go on until no neighbouring pair is known.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

LONG_WORD = 64
"""Ids from which on `merge_long_word` is the faster one; both give the same ids."""

_NO_RANK = 1 << 62


class MergeTable(NamedTuple):
    """What a tokenizer has learned, ready for look-up. Rank 0 was learned first."""

    ranks: dict[int, int]
    """`pair_key(left, right)` -> rank, in the order of the ranks."""
    products: list[int]
    """rank -> the id that the pair becomes."""


def pair_key(left: int, right: int) -> int:
    """Return one number for a pair of ids; numbers compare as the pairs do."""
    return left << 32 | right


def pair_of(key: int) -> tuple[int, int]:
    """Return the pair of ids behind a `pair_key`."""
    return key >> 32, key & 0xFFFFFFFF


def merge_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Return `ids` after all merges, by whichever of the two ways is faster for their number."""
    if len(ids) < LONG_WORD:
        return merge_short_word(ids, table)
    return merge_long_word(ids, table)


def merge_short_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Merge by looking through the whole word for the lowest rank each time: quadratic."""
    rank_of, products = table.ranks.get, table.products
    merged = list(ids)
    # ranks[i] belongs to the pair (merged[i], merged[i + 1]).
    ranks = [rank_of(a << 32 | b, _NO_RANK) for a, b in pairwise(merged)]
    while ranks and (lowest := min(ranks)) != _NO_RANK:
        at = ranks.index(lowest)
        merged[at : at + 2] = [products[lowest]]
        del ranks[at]
        if at > 0:
            ranks[at - 1] = rank_of(merged[at - 1] << 32 | merged[at], _NO_RANK)
        if at < len(ranks):
            ranks[at] = rank_of(merged[at] << 32 | merged[at + 1], _NO_RANK)
    return merged


def merge_long_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Merge over a linked list, with the places of each rank waiting in a heap: n log n.

    A place that changed while it waited is recognised because its pair no longer has that rank.
    """
    rank_of, products = table.ranks.get, table.products
    n = len(ids)
    merged = list(ids)
    following = list(range(1, n + 1))
    preceding = list(range(-1, n - 1))
    waiting: dict[int, list[int]] = {}
    for at in range(n - 1):
        rank = rank_of(merged[at] << 32 | merged[at + 1])
        if rank is not None:
            waiting.setdefault(rank, []).append(at)
    heap = sorted(waiting)
    while heap:
        rank = heappop(heap)
        places = waiting.pop(rank)
        places.sort(reverse=True)
        product = products[rank]
        while places:
            at = places.pop()
            right = following[at]
            if merged[at] < 0 or right >= n or rank_of(merged[at] << 32 | merged[right]) != rank:
                continue
            merged[at], merged[right] = product, -1
            after = following[at] = following[right]
            if after < n:
                preceding[after] = at
            lower = False
            for left, right in ((preceding[at], at), (at, after)):
                if left < 0 or right >= n:
                    continue
                new = rank_of(merged[left] << 32 | merged[right])
                if new is None:
                    continue
                if new in waiting:
                    waiting[new].append(left)
                else:
                    waiting[new] = [left]
                    heappush(heap, new)
                lower = lower or new < rank
            if lower:  # possible where one token is the product of two merges
                waiting.setdefault(rank, []).extend(places)
                heappush(heap, rank)
                break
    return [token for token in merged if token >= 0]
