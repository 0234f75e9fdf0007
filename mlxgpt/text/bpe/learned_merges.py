"""Word counts -> merges: byte-pair encoding as such; knows no files, no text and no special tokens.

Sennrich et al. 2016, algorithm 1: count every pair of neighbours in all words, join the most
frequent pair everywhere, repeat. Pair counts are kept up to date instead of being taken anew, and
are unbounded Python integers.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER
from mlxgpt.text.bpe.merging import pair_of

Progress = Callable[[int, int], None]
"""Called with (tokens so far, tokens wanted): after each merge, by the kernels now and then."""

_BORDER = -1  # stands between two words
_INSIDE = -2  # a place that is neither the first nor the last of its token


@dataclass(frozen=True, kw_only=True)
class LearnedMerges:
    """The result of training; an id is an index into `tokens`."""

    tokens: list[bytes]
    """The 256 bytes in `BYTE_ORDER`, then the products of the merges as they were learned."""
    merges: list[tuple[int, int]]
    counts: list[int]
    """How often each merge's pair occurred when its turn came."""


def learn_merges(
    word_counts: Mapping[bytes, int],
    n_tokens: int,
    *,
    min_frequency: int = 1,
    max_token_length: int | None = None,
    forbidden: Collection[bytes] = (),
    progress: Progress | None = None,
) -> LearnedMerges:
    """Learn merges until there are `n_tokens` tokens, the 256 bytes included.

    Of equally frequent pairs the one with the smaller ids comes first; overlapping pairs count
    ("aaa" holds two), as in the `tokenizers` library. No product is longer than
    `max_token_length` bytes or one of `forbidden`. Learning stops early when no pair occurs
    `min_frequency` times: nothing is invented. The order of `word_counts` does not matter.
    """
    places = _Places(word_counts)
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    refused = frozenset(forbidden)
    merges: list[tuple[int, int]] = []
    counts: list[int] = []
    # Each pair that occurs is in the heap at least once, with its count or a larger, outdated one.
    heap = [(-count, pair) for pair, count in places.counts.items()]
    heapify(heap)
    while heap and len(tokens) < n_tokens:
        negative, pair = heappop(heap)
        count = places.counts.get(pair, 0)
        if count != -negative:
            if count > 0:
                heappush(heap, (-count, pair))
            continue
        if count < max(1, min_frequency):
            break
        left, right = pair_of(pair)
        product = tokens[left] + tokens[right]
        if product in refused or len(product) > (max_token_length or len(product)):
            continue
        # Between two borders the earlier merges leave one way to divide given bytes, so no other
        # pair has led to these: the product is new.
        tokens.append(product)
        merges.append((left, right))
        counts.append(count)
        for grown in places.join(left, right, len(tokens) - 1):
            heappush(heap, (-places.counts[grown], grown))
        if progress is not None:
            progress(len(tokens), n_tokens)
    return LearnedMerges(tokens=tokens, merges=merges, counts=counts)


class _Places:
    """All distinct words in one row of places, a byte each, and where in it each pair stands.

    `ids` holds a token's id at its first and at its last place. So its neighbour to the right
    begins where it ends, and its neighbour to the left has its id in the place before: a linked
    list without links, in which a merge costs what its occurrences cost, however long the words.
    """

    def __init__(self, word_counts: Mapping[bytes, int]) -> None:
        first_id = {byte: i for i, byte in enumerate(BYTE_ORDER)}
        self.ids: list[int] = [_BORDER]
        self.lengths = [1] * len(BYTE_ORDER)
        """id -> places that the token takes."""
        self.weights: list[int] = [0]
        """place -> how often its word occurs."""
        self.counts: dict[int, int] = {}
        self.where: dict[int, list[int]] = {}
        """pair -> first places; some may be outdated, which the ids there tell."""
        for word, weight in word_counts.items():
            if weight <= 0:
                continue
            ids = [first_id[byte] for byte in word]
            start = len(self.ids)
            for at, (left, right) in enumerate(pairwise(ids), start):
                pair = left << 32 | right
                if pair in self.counts:
                    self.counts[pair] += weight
                    self.where[pair].append(at)
                else:
                    self.counts[pair] = weight
                    self.where[pair] = [at]
            self.ids.extend(ids)
            self.ids.append(_BORDER)
            self.weights.extend([weight] * (len(ids) + 1))

    def join(self, left: int, right: int, new: int) -> list[int]:
        """Make `left right` to `new` everywhere; return the pairs that became more frequent."""
        ids, weights, where = self.ids, self.weights, self.where
        n_left, n_right = self.lengths[left], self.lengths[right]
        self.lengths.append(n_left + n_right)
        changes: dict[int, int] = {}
        # From left to right, so that "aaa" becomes "aa a".
        for at in sorted(where.pop(left << 32 | right)):
            middle = at + n_left
            if ids[at] != left or ids[middle] != right:
                continue
            weight = weights[at]
            end = middle + n_right
            before, after = ids[at - 1], ids[end]
            if before >= 0:
                gone, come = before << 32 | left, before << 32 | new
                changes[gone] = changes.get(gone, 0) - weight
                changes[come] = changes.get(come, 0) + weight
                where.setdefault(come, []).append(at - self.lengths[before])
            if after >= 0:
                gone, come = right << 32 | after, new << 32 | after
                changes[gone] = changes.get(gone, 0) - weight
                changes[come] = changes.get(come, 0) + weight
                where.setdefault(come, []).append(at)
            ids[middle - 1] = ids[middle] = _INSIDE
            ids[at] = ids[end - 1] = new
        del self.counts[left << 32 | right]
        changes.pop(left << 32 | right, None)
        return self._apply(changes)

    def _apply(self, changes: dict[int, int]) -> list[int]:
        grown = []
        for pair, change in changes.items():
            count = self.counts.get(pair, 0) + change
            assert count >= 0, "a pair count fell below zero"
            if count:
                self.counts[pair] = count
                if change > 0:
                    grown.append(pair)
            else:
                self.counts.pop(pair, None)
                self.where.pop(pair, None)
        return grown
