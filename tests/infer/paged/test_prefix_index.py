"""Beginnings are found again by their tokens, and forgotten in the right order."""

from collections.abc import Sequence

import pytest

from mlxgpt.infer.paged.blocks import Blocks, BlockTable
from mlxgpt.infer.paged.prefix_index import PrefixIndex


def computed(blocks: Blocks, index: PrefixIndex, tokens: Sequence[int]) -> BlockTable:
    """Take in a text as an engine does, and remember it."""
    table = index.match(tokens)
    blocks.append(table, len(tokens) - table.length)
    index.insert(tokens, table)
    return table


@pytest.fixture(params=[False, True], ids=["hashed", "all hashes equal"])
def pool(request: pytest.FixtureRequest) -> tuple[Blocks, PrefixIndex]:
    blocks = Blocks(4, 32)
    if request.param:
        return blocks, PrefixIndex(blocks, chained_hash=lambda *_: 1)
    return blocks, PrefixIndex(blocks)


def test_the_longest_known_beginning_leaves_a_token_to_compute(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    first = computed(blocks, index, range(10))
    for length, known in [(0, 0), (1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (10, 8), (30, 8)]:
        table = index.match(range(length))
        assert table.length == known
        assert table.blocks == first.blocks[: known // 4]
        assert all(blocks.refs(b) == 3 for b in table.blocks)
        blocks.free(table)
    assert index.match([0, 1, 2, 9, 9]).length == 0
    assert index.match([0, 1, 2, 3, 4, 5, 6, 9, 9]).length == 4


def test_the_same_tokens_after_another_beginning_are_another_block(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    computed(blocks, index, [1] * 4 + [2] * 4)
    second = computed(blocks, index, [3] * 4 + [2] * 4)
    assert index.match([2] * 5).length == 0
    assert index.match([3] * 4 + [2] * 4 + [0]).blocks == second.blocks
    assert index.count == 4


def test_a_block_that_is_not_full_is_not_known(pool: tuple[Blocks, PrefixIndex]) -> None:
    blocks, index = pool
    computed(blocks, index, range(7))
    assert index.count == 1
    assert index.match(range(8)).length == 4


def test_two_texts_that_compute_the_same_keep_their_own_blocks(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    tables = [index.match(range(9)) for _ in range(2)]
    for table in tables:
        blocks.append(table, 9)
    for table in tables:
        index.insert(range(8), table)
    assert index.count == 2
    assert set(tables[0].blocks).isdisjoint(tables[1].blocks)
    third = index.match(range(9))
    assert third.blocks == tables[0].blocks[:2]
    blocks.free(tables[1])
    assert index.evictable == 0


def test_blocks_outlive_their_text_until_they_are_evicted(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    table = computed(blocks, index, range(10))
    assert index.evictable == 0
    blocks.free(table)
    assert index.evictable == 2
    assert blocks.available == 30
    assert index.evict(1) == 1
    assert index.match(range(10)).length == 4, "the last block goes first"
    assert index.evict(5) == 0, "a text has it"


def test_the_least_recently_used_goes_first(pool: tuple[Blocks, PrefixIndex]) -> None:
    blocks, index = pool
    texts = [[i] * 9 for i in range(3)]
    for text in texts:
        blocks.free(computed(blocks, index, text))
    blocks.free(index.match(texts[0]))
    assert index.evict(3) == 3
    known = [index.match(text).length for text in texts]
    assert known == [8, 0, 4]


def test_an_evicted_block_is_not_found_under_its_old_tokens(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    old, new = [1] * 9, [2] * 9
    blocks.free(computed(blocks, index, old))
    assert index.evict(9) == 2
    assert index.match(old).length == 0
    blocks.free(computed(blocks, index, new))
    assert index.match(old).length == 0
    assert index.match(new).length == 8


def test_blocks_before_those_in_use_can_be_evicted_too(pool: tuple[Blocks, PrefixIndex]) -> None:
    blocks, index = pool
    table = computed(blocks, index, range(17))
    blocks.drop_front(table, 9)
    assert index.evictable == 2
    assert index.evict(1) == 1
    assert index.match(range(17)).length == 4
    assert index.count == 1
    assert (len(table.blocks), blocks.available) == (3, 28)
    index.insert(range(17), table)
    assert index.count == 1, "what follows a lost block cannot be found"


def test_a_table_that_is_used_again_is_looked_at_from_the_beginning(
    pool: tuple[Blocks, PrefixIndex],
) -> None:
    blocks, index = pool
    table = computed(blocks, index, [1] * 9)
    blocks.free(table)
    blocks.append(table, 9)
    index.insert([2] * 9, table)
    assert index.match([2] * 9).blocks == table.blocks[:2]
    blocks.truncate(table, 0)
    blocks.append(table, 4)
    index.insert([3] * 4, table)
    assert index.match([3] * 9).blocks == table.blocks


def test_nothing_is_known_after_clear(pool: tuple[Blocks, PrefixIndex]) -> None:
    blocks, index = pool
    kept = computed(blocks, index, [1] * 9)
    blocks.free(computed(blocks, index, [2] * 9))
    index.clear()
    assert (index.count, index.evictable) == (0, 0)
    assert blocks.available == 29
    assert index.match([1] * 9).length == 0
    assert all(blocks.refs(b) == 1 for b in kept.blocks)
    index.insert([1] * 9, kept)
    assert index.match([1] * 9).length == 8


def test_what_is_kept_makes_way_for_a_long_run() -> None:
    blocks = Blocks(4, 128)
    index = PrefixIndex(blocks)
    for i in range(32):
        blocks.free(computed(blocks, index, [i] * 16))
    assert index.evictable == 128
    assert index.evict(2) == 2
    table = index.match([99])
    blocks.append(table, 4, expected=32)
    blocks.append(table, 28)
    assert len(blocks.stretches(table.blocks)) == 1
    assert index.evictable >= 128 - 2 - 2 * 8
