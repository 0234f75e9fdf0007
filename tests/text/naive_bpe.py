"""Byte-pair encoding written as its definition reads: slow, obvious, for comparison only."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count, pairwise

from mlxgpt.text.bpe.byte_alphabet import BYTE_ORDER

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


def segment_dropping(
    symbols: Sequence[bytes], ranks: Mapping[tuple[bytes, bytes], int], dropped: Callable[[], bool]
) -> list[bytes]:
    """Algorithm 1 of Provilkov et al. 2020: in each step every possible merge has its own bit."""
    parts = list(symbols)
    while True:
        kept = [merge for merge in possible_merges(parts, ranks) if not dropped()]
        if not kept:
            return parts
        _, i = min(kept)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def segment_in_order(
    symbols: Sequence[bytes], ranks: Mapping[tuple[bytes, bytes], int], dropped: Iterator[bool]
) -> list[bytes]:
    """The same law with fewer bits: what is worse than the best kept merge is not looked at."""
    parts = list(symbols)
    while True:
        for _, i in possible_merges(parts, ranks):
            if not next(dropped):
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
                break
        else:
            return parts


def possible_merges(
    parts: Sequence[bytes], ranks: Mapping[tuple[bytes, bytes], int]
) -> list[tuple[int, int]]:
    """Return (rank, place) of each pair that can be joined, the best first."""
    return sorted((ranks[pair], i) for i, pair in enumerate(pairwise(parts)) if pair in ranks)


def stream(p: float, seed: int, position: int) -> Iterator[bool]:
    """The bits of BPE-dropout for the word at a byte position, for rates above 0."""
    keep = int((1 - p) * 2**64)
    at_least = [2**64]
    for _ in range(64):
        at_least.append(at_least[-1] * keep // 2**64)
    if not 0 <= seed < 2**64:
        seed = int.from_bytes(blake2b(str(seed).encode(), digest_size=8).digest(), "little")
    start = splitmix64(seed + 0x9E3779B97F4A7C15) + position * 0x9E3779B97F4A7C15
    for k in count():
        draw = splitmix64(start + k * 0xD1B54A32D192ED03)
        gap = max(g for g in range(65) if draw < at_least[g])
        yield from [False] * gap
        if gap < 64:
            yield True


def splitmix64(z: int) -> int:
    """The finalizer of Steele et al. 2014."""
    z %= 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)
