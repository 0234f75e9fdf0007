"""Byte-pair encoding written as its definition reads: slow, obvious, for comparison only."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from mlxgpt.text.byte_alphabet import BYTE_ORDER

Merges = list[tuple[bytes, bytes]]


def learn(word_counts: Mapping[bytes, int], n_merges: int) -> Merges:
    """Learn merges by counting all pairs anew at each step."""
    tokens = [bytes([byte]) for byte in BYTE_ORDER]
    words = {word: [bytes([byte]) for byte in word] for word in word_counts}
    merges: Merges = []
    while len(merges) < n_merges:
        pairs = count_pairs(words, word_counts)
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], tokens.index(p[0]), tokens.index(p[1])))
        merges.append(best)
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
        words = {word: join(parts, best) for word, parts in words.items()}
    return merges


def count_pairs(
    words: Mapping[bytes, Sequence[bytes]], word_counts: Mapping[bytes, int]
) -> Counter[tuple[bytes, bytes]]:
    """Count neighbours in all words; overlapping ones count, so "aaa" holds (a, a) twice."""
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    for word, parts in words.items():
        for pair in pairwise(parts):
            pairs[pair] += word_counts[word]
    return pairs


def join(parts: Sequence[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    """Join a pair wherever it stands, from left to right."""
    joined: list[bytes] = []
    i = 0
    while i < len(parts):
        if tuple(parts[i : i + 2]) == pair:
            joined.append(pair[0] + pair[1])
            i += 2
        else:
            joined.append(parts[i])
            i += 1
    return joined


def segment(word: bytes, merges: Merges) -> list[bytes]:
    """Join the earliest-learned pair of a word, the leftmost one, until none is left."""
    parts = [bytes([byte]) for byte in word]
    while True:
        known = [
            (merges.index(pair), i) for i, pair in enumerate(pairwise(parts)) if pair in merges
        ]
        if not known:
            return parts
        _, i = min(known)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
