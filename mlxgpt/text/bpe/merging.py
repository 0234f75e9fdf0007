"""The ids of one word's symbols -> the ids after all merges; plain functions over one table.

The rule is that of Sennrich et al. 2016 (algorithm 1 applied to a new word): of all neighbouring
pairs take the one that was learned first, the leftmost of them if it occurs more than once, join
it, and go on until no neighbouring pair is known.
"""

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from mlxgpt.errors import TokenizerError

MergeTable = list[dict[int, int]]
"""left id -> right id -> `rank << 32 | product`. These numbers compare as the ranks do."""

NO_MERGE = 1 << 62
"""Stands for "this pair is not known"; larger than every number in a table."""

LONG_WORD = 64
"""Ids from which on `merge_long_word` is the faster one; both give the same ids."""

_PRODUCT = (1 << 32) - 1


def merge_table(n_ids: int, merges: Iterable[Sequence[int]], products: Iterable[int]) -> MergeTable:
    """Return the table of pairs of ids below `n_ids`, the first learned first.

    `products` holds the id that each pair becomes. Raises `TokenizerError` for a pair that stands
    twice.
    """
    none: dict[int, int] = {}
    table = [none] * n_ids
    for rank, ((left, right), product) in enumerate(zip(merges, products, strict=True)):
        if table[left] is none:
            table[left] = {}
        if table[left].setdefault(right, rank << 32 | product) >> 32 != rank:
            first = table[left][right] >> 32
            raise TokenizerError(f"merge {rank} stands twice: it is merge {first} as well")
    return table


def pair_of(key: int) -> tuple[int, int]:
    """Return the pair of ids in the one number `left << 32 | right`."""
    return key >> 32, key & _PRODUCT


def product_of(merge: int) -> int:
    """Return the id that the pair becomes, given its number in a `MergeTable`."""
    return merge & _PRODUCT


def merge_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Return `ids` after all merges, by whichever of the two ways is faster for their number."""
    if len(ids) < LONG_WORD:
        return merge_short_word(ids, table)
    return merge_long_word(ids, table)


def merge_short_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Merge by looking through the whole word for the lowest rank each time: quadratic."""
    merged = list(ids)
    # known[i] belongs to the pair (merged[i], merged[i + 1]).
    known = [table[left].get(right, NO_MERGE) for left, right in pairwise(merged)]
    while known and (best := min(known)) != NO_MERGE:
        at = known.index(best)
        product = merged[at] = best & _PRODUCT
        del merged[at + 1], known[at]
        if at > 0:
            known[at - 1] = table[merged[at - 1]].get(product, NO_MERGE)
        if at < len(known):
            known[at] = table[product].get(merged[at + 1], NO_MERGE)
    return merged


def merge_long_word(ids: Sequence[int], table: MergeTable) -> list[int]:
    """Merge over a linked list, with the places of each merge waiting in a heap: n log n.

    A place that changed while it waited is recognised because its pair is another one now.
    """
    n = len(ids)
    merged = list(ids)
    following = list(range(1, n + 1))
    preceding = list(range(-1, n - 1))
    waiting: dict[int, list[int]] = {}
    for at, (left, right) in enumerate(pairwise(merged)):
        merge = table[left].get(right)
        if merge is not None:
            waiting.setdefault(merge, []).append(at)
    heap = sorted(waiting)
    while heap:
        best = heappop(heap)
        places = waiting.pop(best)
        places.sort(reverse=True)
        product = best & _PRODUCT
        while places:
            at = places.pop()
            right = following[at]
            if merged[at] < 0 or right >= n or table[merged[at]].get(merged[right]) != best:
                continue
            merged[at], merged[right] = product, -1
            after = following[at] = following[right]
            if after < n:
                preceding[after] = at
            lower = False
            for first, second in ((preceding[at], at), (at, after)):
                if first < 0 or second >= n:
                    continue
                new = table[merged[first]].get(merged[second])
                if new is None:
                    continue
                if new in waiting:
                    waiting[new].append(first)
                else:
                    waiting[new] = [first]
                    heappush(heap, new)
                lower = lower or new < best
            if lower:  # possible where one token is the product of two merges
                waiting.setdefault(best, []).extend(places)
                heappush(heap, best)
                break
    return [token for token in merged if token >= 0]
