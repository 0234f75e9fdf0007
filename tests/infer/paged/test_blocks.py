"""Block tables, one rule at a time."""

import sys
from types import FrameType

import pytest

from mlxgpt.infer.paged.blocks import Blocks, BlockTable, Copy, OutOfBlocks
from mlxgpt.infer.paged.prefix_index import PrefixIndex


def placed(blocks: Blocks, tokens: int, expected: int = 0) -> BlockTable:
    table = BlockTable()
    assert blocks.append(table, tokens, expected) == []
    return table


@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_text_uses_as_many_blocks_as_its_tokens_need(size: int) -> None:
    blocks = Blocks(size, 40)
    table = BlockTable()
    for length in range(1, 3 * size + 2):
        blocks.append(table, 1, expected=1000)
        assert table.length == length
        assert len(table.blocks) == -(-length // size)
        assert blocks.available == 40 - len(table.blocks)
    blocks.free(table)
    assert blocks.available == 40


def test_slots_follow_the_table() -> None:
    blocks = Blocks(4, 16)
    table = placed(blocks, 10)
    blocks.drop_front(table, 5)
    a, b = table.blocks
    assert table.dropped == 4
    assert blocks.slots(table, 6, 10) == [4 * a + 2, 4 * a + 3, 4 * b, 4 * b + 1]


def test_a_text_fills_the_room_that_was_kept_for_it() -> None:
    blocks = Blocks(16, 1000)
    first = placed(blocks, 140, expected=16 * 20)
    second = placed(blocks, 140, expected=16 * 20)
    for _ in range(180):
        blocks.append(first, 1, 16 * 20)
        blocks.append(second, 1, 16 * 20)
    assert list(blocks.segments) == [32, 64]
    assert blocks.stretches(first.blocks) == [(0, 20)]
    assert blocks.stretches(second.blocks) == [(32, 20)]


def test_a_text_longer_than_expected_grows_in_place_or_doubles() -> None:
    blocks = Blocks(1, 1000)
    placed(blocks, 100, 128)
    table = placed(blocks, 1)
    other = placed(blocks, 1)
    for _ in range(199):
        blocks.append(table, 1)
        blocks.append(other, 1)
    assert len(blocks.stretches(table.blocks)) <= 9
    assert len(blocks.stretches(other.blocks)) <= 9


def test_room_kept_free_is_available_to_others() -> None:
    blocks = Blocks(1, 64)
    first = placed(blocks, 10, expected=64)
    assert blocks.available == 54
    others = [placed(blocks, 1) for _ in range(54)]
    assert blocks.available == 0
    with pytest.raises(OutOfBlocks, match="1 blocks are needed, 0 are available"):
        blocks.append(first, 1)
    blocks.free(others[0])
    blocks.append(first, 1)


def test_those_with_most_room_give_it_up_first() -> None:
    blocks = Blocks(1, 64)
    blocks.free(placed(blocks, 64))
    long, short = placed(blocks, 4, expected=32), placed(blocks, 4, expected=8)
    for _ in range(24):
        placed(blocks, 1)
    assert placed(blocks, 1).blocks == [16], "the last half of what was kept for the long one"
    blocks.append(short, 4)
    blocks.append(long, 12)
    assert blocks.stretches(short.blocks) == [(32, 8)]
    assert blocks.stretches(long.blocks) == [(0, 16)]


def test_a_text_goes_on_beside_itself_rather_than_in_a_hole() -> None:
    blocks = Blocks(1, 64)
    fillers = [placed(blocks, 1) for _ in range(16)]
    table = placed(blocks, 1)
    blocks.free(fillers[3])
    blocks.append(table, 1)
    assert len(blocks.stretches(table.blocks)) == 1
    assert placed(blocks, 1).blocks == [3]


def test_nothing_changes_when_there_is_no_room() -> None:
    blocks = Blocks(4, 8)
    table, other = placed(blocks, 9), placed(blocks, 14)
    lying = list(table.blocks)
    with pytest.raises(OutOfBlocks):
        blocks.append(table, 8)
    assert (table.blocks, table.length) == (lying, 9)
    assert blocks.available == 1
    fork = blocks.fork(other)
    blocks.append(table, 4)
    with pytest.raises(OutOfBlocks):  # the last block would have to be copied
        blocks.append(fork, 1)
    assert fork.blocks == other.blocks
    assert blocks.refs(other.blocks[-1]) == 2


def test_a_shared_block_is_copied_before_it_is_written() -> None:
    blocks = Blocks(4, 16)
    table = placed(blocks, 10)
    fork = blocks.fork(table)
    assert [blocks.refs(b) for b in table.blocks] == [2, 2, 2]
    shared = table.blocks[-1]
    (copy,) = blocks.append(fork, 1)
    assert copy == Copy(shared, fork.blocks[-1], 2)
    assert fork.blocks[:2] == table.blocks[:2]
    assert fork.blocks[2] != shared
    assert blocks.append(table, 1) == [], "it is the only one now"
    assert table.blocks[-1] == shared


def test_a_full_block_is_not_copied() -> None:
    blocks = Blocks(4, 16)
    table = placed(blocks, 8)
    fork = blocks.fork(table)
    assert blocks.append(fork, 1) == []
    assert fork.blocks[:2] == table.blocks


def test_going_back_into_a_block_that_the_index_keeps_copies_it() -> None:
    blocks = Blocks(4, 16)
    index = PrefixIndex(blocks)
    table = placed(blocks, 8)
    index.insert(range(8), table)
    blocks.truncate(table, 6)
    kept = table.blocks[-1]
    assert blocks.append(table, 1) == [Copy(kept, table.blocks[-1], 2)]
    assert index.evictable == 1


def test_truncate_gives_back_and_goes_on_in_the_same_place() -> None:
    blocks = Blocks(2, 32)
    table = placed(blocks, 12, expected=16)
    lying = list(table.blocks)
    blocks.truncate(table, 5)
    assert table.blocks == lying[:3]
    assert blocks.available == 29
    blocks.append(table, 7)
    assert table.blocks == lying
    blocks.truncate(table, 0)
    assert blocks.available == 32


def test_blocks_that_still_hold_a_seen_token_are_not_dropped() -> None:
    blocks = Blocks(4, 16)
    table = placed(blocks, 12)
    lying = list(table.blocks)
    for before, dropped in [(0, 0), (3, 0), (4, 4), (7, 4), (2, 4), (12, 12)]:
        blocks.drop_front(table, before)
        assert table.dropped == dropped
        assert table.blocks == lying[dropped // 4 :]
    assert blocks.available == 16
    blocks.append(table, 1)
    assert (table.length, len(table.blocks)) == (13, 1)


def test_the_pool_grows_by_few_segments_as_it_is_filled() -> None:
    blocks = Blocks(1, 1000)
    assert list(blocks.segments) == []
    table = BlockTable()
    seen = []
    for _ in range(1000):
        blocks.append(table, 1)
        seen.append(sum(blocks.segments))
    assert len(blocks.segments) <= 8
    assert seen[0] < 1000 / 50
    assert sum(blocks.segments) == 1000
    assert all(total <= 4 * (i + 1) + 8 for i, total in enumerate(seen))


@pytest.mark.parametrize("capacity", [*range(1, 80), 255, 256, 257, 1000, 100_000])
def test_any_capacity_can_be_filled(capacity: int) -> None:
    blocks = Blocks(16, capacity)
    tables = []
    while blocks.available:
        tables.append(placed(blocks, min(blocks.available, 1 + capacity // 7) * 16))
    assert sum(blocks.segments) == capacity
    assert len(blocks.segments) <= 8
    assert sorted(b for t in tables for b in t.blocks) == list(range(capacity))


def test_much_room_is_not_kept_before_any_of_it_is_filled() -> None:
    blocks = Blocks(16, 100_000)
    for _ in range(8):
        placed(blocks, 16, expected=16 * 10_000)
    assert sum(blocks.segments) < 100_000 / 16


def test_stretches_end_with_their_segment() -> None:
    blocks = Blocks(1, 8)
    placed(blocks, 8)
    assert list(blocks.segments) == [8]
    assert blocks.stretches([0, 1, 2, 5, 4, 6, 7]) == [(0, 3), (5, 1), (4, 1), (6, 2)]
    two = Blocks(1, 12)
    placed(two, 4)
    placed(two, 8)
    assert list(two.segments) == [4, 8]
    assert two.stretches(range(2, 6)) == [(2, 2), (4, 2)]
    assert two.stretches([]) == []


def test_a_larger_pool_costs_no_more() -> None:
    def calls(capacity: int) -> int:
        blocks = Blocks(16, capacity)
        tables = [placed(blocks, 16 * capacity // 40, expected=16 * capacity) for _ in range(20)]
        count = 0

        def counted(frame: FrameType, event: str, arg: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            for table in tables:
                for _ in range(20):
                    blocks.append(table, 16)
                blocks.truncate(table, table.length - 100)
                blocks.drop_front(table, 100)
                text = BlockTable()
                blocks.append(text, 100, expected=500)
                blocks.free(text)
        finally:
            sys.setprofile(None)
        return count

    assert calls(100_000) < 1.5 * calls(2_000)
