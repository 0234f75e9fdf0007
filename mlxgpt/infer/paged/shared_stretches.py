"""Stretches of many texts -> those with which several begin, and what each has for itself. No MLX.

Slots that several texts read are read once for all of them: their queries lie in one matrix.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mlxgpt.infer.paged.stretches import Stretch, between


class Shared(NamedTuple):
    """A stretch that several rows read."""

    stretch: Stretch
    rows: list[int]


def shared_stretches(
    texts: Sequence[list[Stretch]], worthwhile: Callable[[int, int], bool]
) -> tuple[list[Shared], list[list[Stretch]]]:
    """Return the shared stretches and what is left of each text.

    `worthwhile(rows, count)` says whether so many rows should share a stretch of `count` slots.
    """
    rest = [list(text) for text in texts]
    shared: list[Shared] = []
    groups = _alike(range(len(texts)), rest)
    while groups:
        rows = groups.pop()
        common = _common([rest[r] for r in rows])
        count = sum(stretch.size for stretch in common)
        after = {r: _after(rest[r], count) for r in rows}
        if worthwhile(len(rows), count // len(common)):
            shared += [Shared(stretch, rows) for stretch in common]
            for r in rows:
                rest[r] = after[r]
        groups += _alike(rows, after)  # some of them may have more in common
    return shared, rest


def _alike(
    rows: Iterable[int], texts: Sequence[list[Stretch]] | dict[int, list[Stretch]]
) -> list[list[int]]:
    """Return the groups of two rows or more whose texts begin in the same slot."""
    groups: dict[Stretch, list[int]] = defaultdict(list)
    for r in rows:
        if texts[r]:
            groups[texts[r][0]._replace(size=0)].append(r)
    return [group for group in groups.values() if len(group) > 1]


def _common(texts: Sequence[list[Stretch]]) -> list[Stretch]:
    """Return with which slots all texts begin."""
    common: list[Stretch] = []
    for heads in zip(*texts, strict=False):
        if len({head._replace(size=0) for head in heads}) > 1:
            break
        common.append(min(heads))  # they differ in their sizes only, if at all
    return common


def _after(text: list[Stretch], count: int) -> list[Stretch]:
    """Return what follows the first `count` slots."""
    last = text[-1]
    return between(text, text[0].first + count, last.first + last.size)
