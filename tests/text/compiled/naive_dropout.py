"""BPE-dropout as Provilkov et al. 2020 write it down, over the gaps of `Dropout`: slow, obvious."""

from collections.abc import Iterator, Mapping, Sequence

from mlxgpt.text.bpe.dropout import LONGEST_GAP, Dropout

Merges = Mapping[tuple[int, int], tuple[int, int]]
"""(left, right) -> (rank, product)"""


def drops(dropout: Dropout, position: int) -> Iterator[bool]:
    """Yield whether each candidate that is looked at is dropped."""
    k = 0
    while True:
        u = dropout.draw(position, k)
        gap = max(g for g in range(LONGEST_GAP + 1) if g == 0 or u < dropout.thresholds[g])
        yield from [False] * gap
        if gap < LONGEST_GAP:
            yield True
        k += 1


def encode(symbols: Sequence[int], merges: Merges, dropout: Dropout, position: int) -> list[int]:
    """Return the ids of the word at byte `position`."""
    ids = list(symbols)
    dropped = drops(dropout, position)
    while True:
        pairs = [(ids[i], ids[i + 1]) for i in range(len(ids) - 1)]
        candidates = sorted((merges[pair][0], i) for i, pair in enumerate(pairs) if pair in merges)
        accepted = next((i for _, i in candidates if not next(dropped)), None)
        if accepted is None:
            return ids
        ids[accepted : accepted + 2] = [merges[pairs[accepted]][1]]
