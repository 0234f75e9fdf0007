"""What one matrix product reads: tiles of one width, at equal distances if possible. No MLX."""

from dataclasses import dataclass
from typing import NamedTuple


class Tile(NamedTuple):
    """Neighbouring slots that one row reads; slot `start + i` holds its token `first + i`, but only
    for i in [low, high): the others may hold anything."""

    row: int
    segment: int
    start: int
    first: int
    low: int
    high: int


class View(NamedTuple):
    """`number` tiles from slot `start` of a segment on, `step` slots apart."""

    segment: int
    start: int
    step: int
    number: int


@dataclass(frozen=True)
class Group:
    """Tiles of one width whose scores make one rectangular array."""

    width: int
    views: list[View]
    tiles: list[Tile | None]
    """In the order of the views; None is a place between tiles that belongs to nobody here."""
    shared: bool = False
    """One view of one tile, which is read for all rows in `tiles`."""
