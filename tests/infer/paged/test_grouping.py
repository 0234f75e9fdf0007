"""Which tiles are read by one product: every slot that is due, once, in few operations."""

from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paged_texts import texts

from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.grouping import Cost, grouped
from mlxgpt.infer.paged.groups import Group, Tile
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.run_views import RunViews
from mlxgpt.infer.paged.shared_stretches import shared_stretches
from mlxgpt.infer.paged.step_attention import StepRow
from mlxgpt.infer.paged.stretches import Stretch, between, stretches
from mlxgpt.infer.paged.visibility import visibility

DECODE = Cost.of(3, 3, 64)


def check(groups: list[Group], tiles: list[Tile], segment_slots: list[int]) -> None:
    """The tiles of a group lie where its views say, inside of their segments, and all of what was
    asked for is there once."""
    found = []
    for group in groups:
        assert sum(v.number for v in group.views) == len(group.tiles)
        at = 0
        for view in group.views:
            last = view.start + view.step * (view.number - 1)
            assert 0 <= view.start <= last <= segment_slots[view.segment] - group.width
            for i in range(view.number):
                tile = group.tiles[at + i]
                if tile is not None:
                    assert tile.segment == view.segment
                    assert tile.start == view.start + i * view.step
                    assert 0 <= tile.low < tile.high <= group.width
                    for slot in range(tile.low, tile.high):
                        place = tile.row, tile.segment, tile.start + slot, tile.first + slot
                        found.append(place)
            at += view.number
    wanted = [(t.row, t.segment, t.start + i, t.first + i) for t in tiles for i in range(t.high)]
    assert sorted(found) == sorted(wanted)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 1), st.integers(0, 30), st.integers(1, 60)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from([1, 3, 16]),
    st.sampled_from([DECODE, Cost.of(27, 3, 64), Cost(1, 1, 0, 0), Cost(0, 0, 1, 1)]),
)
def test_every_slot_is_read_once(
    places: list[tuple[int, int, int, int]], block_size: int, cost: Cost
) -> None:
    segment_slots = [31 * block_size, 100 * block_size]
    tiles = []
    for i, (row, segment, block, size) in enumerate(places):
        start = block * block_size
        size = min(size, segment_slots[segment] - start)
        tiles.append(Tile(row, segment, start, 1000 * i, 0, size))
    check(grouped(tiles, segment_slots, block_size, cost), tiles, segment_slots)


def tiles_at(starts: list[int], sizes: list[int]) -> list[Tile]:
    pairs = zip(starts, sizes, strict=True)
    return [Tile(i, 0, start, 0, 0, size) for i, (start, size) in enumerate(pairs)]


def shape(groups: list[Group]) -> list[tuple[int, int, int]]:
    """(width, views, tiles) of each group."""
    return [(g.width, len(g.views), len(g.tiles)) for g in groups]


@pytest.mark.parametrize(
    ("starts", "sizes", "expected"),
    [
        ([512 * i for i in range(16)], [500] * 16, [(500, 1, 16)]),
        ([512 * i for i in range(16)], [480 + i for i in range(16)], [(495, 1, 16)]),
        ([512 * i for i in (3, 1, 0, 2)], [500] * 4, [(500, 1, 4)]),  # in any order
        ([64 * i for i in (0, 1, 2, 4, 5)], [60] * 5, [(60, 1, 6)]),  # a hole is cheap
        ([4096 * i for i in (0, 1, 2, 4, 5)], [4000] * 5, [(4000, 2, 5)]),  # a large one is not
        ([0, 4096, 8192, 8224], [4000, 3900, 20, 20], [(20, 1, 2), (4000, 1, 2)]),
        ([32 * i for i in range(64)], [16] * 64, [(16, 1, 64)]),
    ],
)
def test_few_products(
    starts: list[int], sizes: list[int], expected: list[tuple[int, int, int]]
) -> None:
    tiles = tiles_at(starts, sizes)
    groups = grouped(tiles, [65536], 16, DECODE)
    check(groups, tiles, [65536])
    assert sorted(shape(groups)) == expected


def test_texts_in_pieces_are_cut_to_one_width() -> None:
    """One text of 16 rows in turn, every block of another text: one product for all."""
    tiles = [Tile(i % 16, 0, 16 * i, i // 16 * 16, 0, 16) for i in range(256)]
    merged = tiles_at([16 * i for i in range(0, 256, 4)], [64] * 64)
    assert shape(grouped(tiles, [4096], 16, DECODE)) == [(16, 1, 256)]
    assert shape(grouped(merged, [4096], 16, DECODE)) == [(64, 1, 64)]
    uneven = [Tile(0, 0, 16 * a, 16 * a, 0, 16 * n) for a, n in ((0, 1), (2, 9), (12, 3), (16, 30))]
    (group,) = grouped(uneven, [4096], 16, DECODE)
    assert len(group.views) == 1
    assert group.width < 30 * 16
    check([group], uneven, [4096])


def plan(rows: list[StepRow], blocks: int, window: int | None = None) -> list[list[Group]]:
    pool = Pool(1, 3, 64, mx.float32, 16)
    pool.grow([blocks])
    step = RunViews(pool, rows)
    return [step.groups(bucket, window, 3) for bucket in step._buckets]


def test_a_shared_beginning_is_one_tile() -> None:
    prefix = list(range(32))
    rows = [StepRow(BlockTable([*prefix, 32 + 2 * i], 520), 1) for i in range(32)]
    ((shared, own),) = plan(rows, 100)
    assert shared.shared
    assert (shared.width, len(shared.views), len(shared.tiles)) == (512, 1, 32)
    assert (own.width, len(own.views), len(own.tiles)) == (8, 1, 32)
    # The first text computed the prefix, and goes on where it ends.
    rows[0] = StepRow(BlockTable([*prefix, 32], 520), 1)
    assert len(plan(rows, 100)[0]) == 2
    # Nothing is gained by sharing one block.
    few = [StepRow(BlockTable([0, 32 + 2 * i], 20), 1) for i in range(2)]
    assert not any(group.shared for group in plan(few, 100)[0])


def test_prompts_are_cut_and_short_rows_come_together() -> None:
    rows = [
        StepRow(BlockTable(list(range(16)), 250), 1),
        StepRow(BlockTable(list(range(16, 48)), 512), 300),
        StepRow(BlockTable(list(range(48, 64)), 251), 1),
    ]
    decode, *pieces = plan(rows, 64)
    assert shape(decode) == [(251, 1, 2)] or sum(len(g.tiles) for g in decode) == 2
    # 212 tokens are known; pieces of 128, 128 and 44 see what is before them, and a triangle.
    assert [[g.width for g in piece] for piece in pieces] == [[212, 128], [340, 128], [468, 44]]


@given(st.integers(0, 10**6), st.sampled_from([1, 3, 16]), st.sampled_from([1, 3]))
def test_stretches_are_longest_and_complete(seed: int, block_size: int, segments: int) -> None:
    found = texts(seed, [1, 2], block_size=block_size, segments=segments, order="runs", dropped=2)
    sizes = found.pool.segments
    for row in found.rows:
        table, slots = row.table, []
        parts = stretches(table, block_size, sizes)
        for first, segment, start, size in parts:
            begin = sum(sizes[:segment]) * block_size + start
            assert start + size <= sizes[segment] * block_size
            slots += [(first + i, begin + i) for i in range(size)]
        tokens = range(table.dropped, table.length)
        where = [divmod(p - table.dropped, block_size) for p in tokens]
        blocks = table.blocks
        assert slots == [
            (p, blocks[b] * block_size + i) for p, (b, i) in zip(tokens, where, strict=True)
        ]
        for a, b in pairwise(parts):
            assert (a.segment, a.start + a.size) != (b.segment, b.start)


def test_parts_of_stretches() -> None:
    text = [Stretch(4, 0, 40, 8), Stretch(12, 1, 0, 5)]
    assert between(text, 0, 99) == text
    assert between(text, 6, 13) == [Stretch(6, 0, 42, 6), Stretch(12, 1, 0, 1)]
    assert between(text, 12, 14) == [Stretch(12, 1, 0, 2)]
    assert between(text, 5, 5) == []


def always(rows: int, count: int) -> bool:
    return rows > 1 and count > 0


def test_texts_share_as_much_as_they_have_in_common() -> None:
    a, b = Stretch(0, 0, 0, 32), Stretch(0, 0, 0, 64)
    texts = [
        [a, Stretch(32, 0, 128, 16), Stretch(48, 0, 256, 5)],
        [b],
        [a, Stretch(32, 0, 128, 20)],
        [Stretch(0, 0, 512, 9)],
    ]
    shared, rest = shared_stretches(texts, always)
    assert (Stretch(0, 0, 0, 32), [0, 1, 2]) in shared
    assert (Stretch(32, 0, 128, 16), [0, 2]) in shared
    assert len(shared) == 2
    assert rest == [
        [Stretch(48, 0, 256, 5)],
        [Stretch(32, 0, 32, 32)],
        [Stretch(48, 0, 144, 4)],
        [Stretch(0, 0, 512, 9)],
    ]
    # Where all three share too little, two of them may still share more.
    shared, _ = shared_stretches(texts, lambda rows, count: rows * count >= 100)
    assert shared == []
    with_more = [[a, Stretch(32, 0, 64, 300), Stretch(332, 1, i, 9)] for i in range(2)]
    shared, rest = shared_stretches([*with_more, [a]], lambda _, count: count >= 100)
    assert shared == [(a, [0, 1]), (Stretch(32, 0, 64, 300), [0, 1])]
    assert rest == [[Stretch(332, 1, 0, 9)], [Stretch(332, 1, 1, 9)], [a]]
    shared, _ = shared_stretches(
        [[Stretch(0, 0, 0, 300), Stretch(300, 0, 400 + i, 9)] for i in range(2)] + [[a]],
        lambda _, count: count >= 100,
    )
    assert shared == [(Stretch(0, 0, 0, 300), [0, 1])]


def test_what_each_query_sees() -> None:
    tiles: list[Tile | None] = [Tile(1, 0, 0, 8, 0, 4), None, Tile(0, 0, 8, 20, 1, 4)]
    seen = visibility(Group(4, [], tiles), [22, 9], 2, 3)
    assert seen is not None
    at = [[8, 9], [8, 9, 10]]
    expected = np.zeros((3, 2, 4), bool)
    for query, keys in enumerate(at):
        expected[0, query, [k - 8 for k in keys]] = True
    expected[2, 0, [1, 2]] = True
    expected[2, 1, [1, 2, 3]] = True
    assert (seen == expected).all()
    assert visibility(Group(4, [], [Tile(0, 0, 0, 8, 0, 4)]), [11], 3, None) is None
    assert visibility(Group(4, [], [Tile(0, 0, 0, 8, 0, 4)]), [10], 3, None) is not None
    assert visibility(Group(4, [], [Tile(0, 0, 0, 8, 0, 4)]), [11], 1, 4) is None
    assert visibility(Group(4, [], [Tile(0, 0, 0, 8, 0, 4)]), [11], 2, 4) is not None
