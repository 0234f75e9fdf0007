"""Scattered texts come to lie in one stretch, and beside each other; nothing is moved in vain."""

import numpy as np
import pytest

from mlxgpt.infer.paged.blocks import Blocks, BlockTable, Copy
from mlxgpt.infer.paged.prefix_index import PrefixIndex


def scattered(blocks: Blocks, texts: int, length: int) -> list[BlockTable]:
    """Texts that grew side by side, block by block, with no room left between them."""
    tables = [BlockTable() for _ in range(texts)]
    fillers = []
    for _ in range(length):
        for table in tables:
            blocks.append(table, blocks.block_size)
            fillers.append(BlockTable())
            blocks.append(fillers[-1], 1)
    for filler in fillers:
        blocks.free(filler)
    return tables


def test_compact_moves_a_scattered_text_to_one_aligned_place() -> None:
    blocks = Blocks(4, 64)
    (table,) = scattered(blocks, 1, 6)
    blocks.append(table, 3)
    lying = list(table.blocks)
    assert len(blocks.stretches(lying)) > 2
    copies = blocks.compact(table)
    assert [c.source for c in copies] == lying
    assert [c.target for c in copies] == table.blocks
    assert [c.count for c in copies] == [4] * 6 + [3]
    ((start, number),) = blocks.stretches(table.blocks)
    segment = max(end for end in np.cumsum([0, *blocks.segments]) if end <= start)
    assert number == 7
    assert (start - segment) % 8 == 0
    assert blocks.compact(table) == []
    assert blocks.available == 64 - 7


def test_blocks_of_other_texts_stay_where_they_are() -> None:
    blocks = Blocks(4, 64)
    (table,) = scattered(blocks, 1, 6)
    fork = blocks.fork(table)
    assert blocks.compact(fork) == []
    assert blocks.compact(table) == []
    for text in (table, fork):
        for _ in range(3):
            blocks.append(text, 4)
            blocks.append(BlockTable(), 1)
    shared = table.blocks[:6]
    copies = blocks.compact(table)
    assert len(copies) in (0, 3)
    assert table.blocks[:6] == fork.blocks[:6] == shared


def test_a_kept_block_is_copied_whole_and_found_in_its_new_place() -> None:
    blocks = Blocks(4, 64)
    index = PrefixIndex(blocks)
    (table,) = scattered(blocks, 1, 6)
    tokens = list(range(24))
    index.insert(tokens, table)
    blocks.truncate(table, 22)
    copies = blocks.compact(table)
    assert [c.count for c in copies] == [4] * 6, "the index still needs the end of the last block"
    found = index.match([*tokens, 0])
    assert found.blocks == table.blocks
    assert blocks.append(table, 1) == [Copy(copies[-1].target, table.blocks[-1], 2)]


def test_without_a_place_nothing_is_moved() -> None:
    blocks = Blocks(1, 16)
    tables = scattered(blocks, 1, 6)
    while blocks.available > 4:
        blocks.append(BlockTable(), 1)
    assert blocks.compact(tables[0]) == []


@pytest.mark.parametrize("budget", [8, 16, 200])
def test_tidy_ends_with_every_text_in_one_stretch_side_by_side(budget: int) -> None:
    blocks = Blocks(2, 512)
    tables = scattered(blocks, 6, 7)
    moved = calls = 0
    while copies := blocks.tidy(tables, budget):
        assert len(copies) <= budget
        assert {c.source for c in copies}.isdisjoint(c.target for c in copies)
        moved, calls = moved + len(copies), calls + 1
    assert moved <= 2 * 6 * 7
    starts = []
    for table in tables:
        ((start, number),) = blocks.stretches(table.blocks)
        assert number == 7
        starts.append(start)
    steps = np.diff(sorted(starts))
    assert (steps == 8).sum() >= 4, "most lie beside another"
    assert calls >= (2 if budget < 42 else 1)


def test_the_end_of_a_text_too_long_to_be_moved_is_tidied() -> None:
    blocks = Blocks(1, 512)
    table, fillers = BlockTable(), [BlockTable() for _ in range(448)]
    blocks.append(table, 64, expected=64)
    for filler in fillers:
        blocks.append(filler, 1)
    for filler in fillers[1:16:2]:
        blocks.free(filler)
    blocks.append(table, 8)
    for filler in fillers[256:]:
        blocks.free(filler)
    assert len(blocks.stretches(table.blocks)) == 9
    assert len(blocks.tidy([table], 16)) == 8
    assert len(blocks.stretches(table.blocks)) == 2
    assert blocks.tidy([table], 16) == []


def test_texts_that_lie_well_are_left_alone() -> None:
    blocks = Blocks(16, 4096)
    tables = [BlockTable() for _ in range(8)]
    for table in tables:
        blocks.append(table, 100, expected=250)
    assert blocks.tidy(tables, 1000) == []
    assert blocks.tidy([], 1000) == []
    assert blocks.tidy([BlockTable()], 1000) == []
