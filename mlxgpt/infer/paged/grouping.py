"""Tiles -> groups, by what they are thought to cost. No MLX.

An operation costs a fixed time beside its work, so a view may span slots of others (their scores
are thrown away), and short tiles may be computed as wide as long ones, where that is cheaper than
one more operation. Texts in many small pieces are cut into tiles of one width, at multiples of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from mlxgpt.infer.paged.groups import Group, Tile, View

_GROUP, _VIEW = 45.0, 20.0
_TOLERABLE = 1.25
"""A plan this many times as costly as one without waste is taken as it is."""
_WIDTHS = 16
"""Widths that are tried as the limit of a group."""
_MOST_TILES = 4096
_FINEST = 8
"""Slots; tiles are not cut narrower."""
_CUTS = (16, 8, 4, 2, 1)
"""Blocks in a tile when tiles are cut."""
_TRIED, _GAIN = 2, 0.9
"""So many widths are tried, and only if they may cost this times the best so far, or less."""


@dataclass(frozen=True)
class Cost:
    """Microseconds, as measured with MLX on a CPU; only how they compare matters.

    `group` and `view` are for operations, `tile` for each tile of a group, `slot` for each slot of
    a tile.
    """

    tile: float
    slot: float
    group: float = _GROUP
    view: float = _VIEW

    @classmethod
    def of(cls, queries: int, kv_heads: int, head_dim: int) -> "Cost":
        """`queries` is how many read a key/value head's slot for one row."""
        size = kv_heads * head_dim
        return cls(
            tile=0.2 * kv_heads + 0.0016 * queries * size,
            slot=(5e-4 + 1.4e-4 * queries) * size,
        )

    def __call__(self, groups: Sequence[Group]) -> float:
        """Return what groups cost."""
        return sum(
            self.group + self.view * len(g.views) + len(g.tiles) * (self.tile + g.width * self.slot)
            for g in groups
        )


def grouped(
    tiles: Sequence[Tile], segment_slots: Sequence[int], block_size: int, cost: Cost
) -> list[Group]:
    """Return groups that hold each tile, whole or cut, once."""
    best = _by_width(tiles, segment_slots, cost)
    total = cost(best)
    needed = sum(t.high - t.low for t in tiles)
    ideal = cost.group + cost.view + len(tiles) * cost.tile + needed * cost.slot
    if total <= _TOLERABLE * ideal:
        return best
    for least, width in _promising(tiles, segment_slots, block_size, cost):
        if least < _GAIN * total:
            cut = [_group(width, _cut(tiles, width), segment_slots, cost)]
            if cost(cut) < total:
                best, total = cut, cost(cut)
    return best


def _promising(
    tiles: Sequence[Tile], segment_slots: Sequence[int], block_size: int, cost: Cost
) -> list[tuple[float, int]]:
    """Return the widths to cut tiles to that may be best, with the least that each will cost."""
    most = min(segment_slots[t.segment] for t in tiles)
    found = []
    for width in (block_size * blocks for blocks in _CUTS):
        number = sum((t.start + t.high - 1) // width - t.start // width + 1 for t in tiles)
        if _FINEST <= width <= most and number <= _MOST_TILES:
            slots = number * (cost.tile + width * cost.slot)
            found.append((cost.group + cost.view + slots, width))
    return sorted(found)[:_TRIED]


def _by_width(tiles: Sequence[Tile], segment_slots: Sequence[int], cost: Cost) -> list[Group]:
    """Part tiles by their widths into groups, at the limits that waste least."""
    groups, left = [], list(tiles)
    while left:
        *_, above, width = _limits(sorted(t.high for t in left), cost)
        # The widest first; what does not fit into its segment at this width is left for later.
        fit = [t for t in left if t.high > above and segment_slots[t.segment] >= width]
        groups.append(_group(width, fit, segment_slots, cost))
        taken = set(fit)
        left = [t for t in left if t not in taken]
    return groups


def _limits(widths: list[int], cost: Cost) -> list[int]:
    """Return the limits 0 < ... < widest between which tiles of these widths are put together."""
    if widths[0] == widths[-1]:
        return [0, widths[-1]]
    distinct = sorted(set(widths))
    if len(distinct) > _WIDTHS:
        every = len(distinct) / _WIDTHS
        distinct = [distinct[round((i + 1) * every) - 1] for i in range(_WIDTHS)]
    number, at = [0], 0
    for limit in distinct:  # how many tiles are at most this wide
        while at < len(widths) and widths[at] <= limit:
            at += 1
        number.append(at)
    least = [0.0]
    came_from = [0]
    for j, limit in enumerate(distinct, start=1):
        each = cost.tile + limit * cost.slot
        options = [
            (least[i] + cost.group + cost.view + (number[j] - number[i]) * each, i)
            for i in range(j)
        ]
        total, i = min(options)
        least.append(total)
        came_from.append(i)
    limits, j = [], len(distinct)
    while j:
        limits.append(distinct[j - 1])
        j = came_from[j]
    return [0, *reversed(limits)]


def _cut(tiles: Sequence[Tile], width: int) -> list[Tile]:
    """Return the parts of tiles between multiples of `width`, each as wide as that."""
    parts = []
    for row, segment, start, first, low, high in tiles:
        begin, end = start + low, start + high
        for at in range(begin - begin % width, end, width):
            inside = max(begin - at, 0), min(end - at, width)
            parts.append(Tile(row, segment, at, first + at - start, *inside))
    return parts


def _group(width: int, tiles: Sequence[Tile], segment_slots: Sequence[int], cost: Cost) -> Group:
    """Lay views over tiles, which are computed `width` wide."""
    tile_cost = cost.tile + width * cost.slot
    placed = sorted((_inside(t, width, segment_slots) for t in tiles), key=_address)
    views: list[View] = []
    order: list[Tile | None] = []
    members: list[Tile] = []  # of the view that is being laid
    step = 0

    def close() -> None:
        start = members[0].start
        count = 1 + (members[-1].start - start) // step if step else 1
        views.append(View(members[0].segment, start, step, count))
        at: list[Tile | None] = [None] * count
        for t in members:
            at[(t.start - start) // step if step else 0] = t
        order.extend(at)

    for t in placed:
        if members:
            distance = t.start - members[-1].start
            finer = gcd(step, distance)
            if t.segment == members[-1].segment and distance > 0:
                span = members[-1].start - members[0].start
                before = span // step if step else 0
                holes = (span + distance) // finer - before - 1
                if holes * tile_cost <= cost.view:
                    members.append(t)
                    step = finer
                    continue
            close()
        members, step = [t], 0
    close()
    return Group(width, views, order)


def _inside(tile: Tile, width: int, segment_slots: Sequence[int]) -> Tile:
    """Return the tile moved back so far that `width` slots from its start are in its segment."""
    back = tile.start + width - segment_slots[tile.segment]
    if back <= 0:
        return tile
    row, segment, start, first, low, high = tile
    return Tile(row, segment, start - back, first - back, low + back, high + back)


def _address(tile: Tile) -> tuple[int, int]:
    return tile.segment, tile.start
