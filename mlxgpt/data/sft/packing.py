"""Lengths -> packs that fill a row well; or examples, joined, -> pieces of one length."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlxgpt.config import require
from mlxgpt.data.sft.example import Example
from mlxgpt.seeding import generator


def best_fit_decreasing(places: np.ndarray, capacity: int) -> np.ndarray:
    """Return the pack of each item, int64 (N,), numbered from 0 in the order of their opening.

    Items are taken from the longest to the shortest, equal ones by index, and each goes into the
    pack in which it leaves least room, the earliest of equal ones; where it fits in none, it opens
    a new one (Johnson, 1973: at most 11/9 of the fewest possible packs, and a few). `places`
    (N,), all at least 1. Raises `ConfigError` if one is longer than `capacity`.

    Items of one length are placed together: as long as the fullest pack that takes one has room,
    the next one goes there too. That makes it some work per pair of a length and a room, not one
    search an item.
    """
    require(
        len(places) == 0 or int(places.max()) <= capacity,
        f"a pack of {capacity} places does not hold an example of {places.max(initial=0)}; "
        "give a larger 'data.max_length' (--max-length), or cut what is longer (--overflow)",
    )
    order = np.argsort(-places, kind="stable")
    packs = np.empty(len(places), dtype=np.int64)
    lengths, first = np.unique(-places[order], return_index=True)
    ends = [*first[1:].tolist(), len(order)]
    rooms: list[int] = []  # all rooms that some pack has, ascending
    having: dict[int, list[np.ndarray]] = {}  # room -> the packs that have it
    opened = 0

    def keep(room: int, which: np.ndarray) -> None:
        if room and len(which):
            if room not in having:
                insort(rooms, room)
                having[room] = []
            having[room].append(which)

    for length, start, end in zip((-lengths).tolist(), first.tolist(), ends, strict=True):
        while start < end:
            at = bisect_left(rooms, length)
            if at < len(rooms):
                room = rooms.pop(at)
                found = np.sort(np.concatenate(having.pop(room)))
            else:
                room = capacity
                needed = -(-(end - start) // (capacity // length))
                found = np.arange(opened, opened + needed)
                opened += needed
            each = room // length  # items that fit into every pack found
            full, rest = divmod(end - start, each)
            full = min(full, len(found))
            packs[order[start : start + full * each]] = np.repeat(found[:full], each)
            start += full * each
            keep(room - each * length, found[:full])
            if full < len(found):  # the items are at their end before the packs
                if rest:
                    packs[order[start:end]] = found[full]
                    keep(room - rest * length, found[full : full + 1])
                    full += 1
                keep(room, found[full:])
                start = end
    return packs


def concatenate(streams: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Join `streams` of ids and cut them into rows: (ids, labels), each (rows, `length`).

    Labels are the joined stream shifted by one, so that a row's last label is the first id of the
    next row. The tail that gives no whole row is left out.
    """
    assert length >= 1
    joined = np.concatenate(streams) if len(streams) else np.zeros(0, dtype=np.int32)
    rows = max(0, len(joined) - 1) // length
    cut = rows * length
    return joined[:cut].reshape(rows, length), joined[1 : cut + 1].reshape(rows, length)


@dataclass(frozen=True)
class Pieces:
    """Examples joined in a seeded order and cut, each piece an example to draw.

    A piece has one id more than it takes places, which is the first of the next piece: each id but
    the very first is a target once. The last piece may be shorter.
    """

    examples: tuple[Example, ...]
    unsupervised: int
    """Pieces left out, since nothing in them is to be learned."""


def cut_into_pieces(examples: Sequence[Example], places: int, seed: int) -> Pieces:
    """Join `examples` in an order drawn with `seed` and cut them into pieces of `places` places.

    Within a piece they see each other, as in pre-training. What is supervised stays so; the first
    id of an example never is. Only a function of its arguments: the pieces are the same in all
    passes, in which order they come is the drawing's.
    """
    order = generator(seed, "concatenation-order").permutation(len(examples)).tolist()
    ids = [examples[i].ids for i in order]
    supervised = [examples[i].supervised for i in order]
    inputs, targets = concatenate(ids, places)
    _, learned = concatenate(supervised, places)
    rows = [*zip(inputs, targets, learned, strict=True)]
    if left := sum(map(len, ids)) - 1 - inputs.size:
        tail = np.concatenate(ids)[-left - 1 :]
        rows.append((tail[:-1], tail[1:], np.concatenate(supervised)[-left:]))
    pieces = [
        Example(np.append(row, target[-1]), np.append(False, marks))
        for row, target, marks in rows
        if marks.any()
    ]
    return Pieces(tuple(pieces), len(rows) - len(pieces))
