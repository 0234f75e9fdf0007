from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.kernel_work import ITEM, KernelWork, kernel_work
from mlxgpt.infer.paged.step_attention import StepRow

BLOCK = 4


@st.composite
def rows_and_window(draw: st.DrawFn) -> tuple[list[StepRow], int | None]:
    window = draw(st.none() | st.integers(1, 40))
    rows, first = [], 0
    for _ in range(draw(st.integers(1, 5))):
        new = draw(st.integers(1, 16))
        length = new + draw(st.integers(0, 100))
        dropped = BLOCK * draw(st.integers(0, (length - new) // BLOCK))
        count = -(-(length - dropped) // BLOCK)
        rows.append(StepRow(BlockTable(list(range(first, first + count)), length, dropped), new))
        first += count
    return rows, window


def work_of(rows: list[StepRow], window: int | None, **more: int) -> KernelWork:
    sizes = {"group": 3, "kv_heads": 2, "queries": 4} | more
    return kernel_work(rows, window=window, block_size=BLOCK, **sizes)


@given(rows_and_window(), st.integers(1, 5), st.sampled_from([1, 2, 4, 8]), st.integers(1, 30))
def test_each_query_sees_each_of_its_positions_once(
    given_rows: tuple[list[StepRow], int | None], group: int, queries: int, fewest: int
) -> None:
    rows, window = given_rows
    work = work_of(rows, window, group=group, queries=queries, fewest=fewest)
    tokens = sum(row.count for row in rows)
    seen: Counter[tuple[int, int, int]] = Counter()
    written: Counter[tuple[int, int]] = Counter()
    items = work.plan[: work.items * ITEM].reshape(-1, ITEM).tolist()
    for row, position, query, count, begin, end, span, dropped, table, part, parts in items:
        assert begin <= end
        for index in range(query, min(query + queries, count)):
            token = row + index // group
            last = position + index // group
            place = part + (index // group) * parts
            assert work.first_parts[token] <= place < work.first_parts[token + 1]
            written[place, index % group] += 1
            lowest = max(0, last + 1 - span) if span else 0
            for visible in range(max(begin, lowest), min(end, last + 1)):
                block = work.plan[table + (visible - dropped) // BLOCK]
                seen[token, index % group, int(block) * BLOCK + (visible - dropped) % BLOCK] += 1
    expected: Counter[tuple[int, int, int]] = Counter()
    token = 0
    for text in rows:
        for last in range(text.position, text.table.length):
            first = max(text.table.dropped, 0 if window is None else last + 1 - window)
            for at in range(first, last + 1):
                block, place = divmod(at - text.table.dropped, BLOCK)
                slot = text.table.blocks[block] * BLOCK + place
                expected.update((token, head, slot) for head in range(group))
            token += 1
    assert token == tokens == len(work.first_parts) - 1
    assert seen == expected
    assert written == Counter({(p, h): 1 for p in range(work.parts) for h in range(group)})


def test_short_texts_are_not_cut_and_a_long_one_among_them_is() -> None:
    def row(length: int) -> StepRow:
        return StepRow(BlockTable(list(range(-(-length // BLOCK))), length), 1)

    assert not work_of([row(200)] * 8, None).split
    assert not work_of([row(4000)] * 200, None).split
    work = work_of([row(200)] * 8 + [row(8000)], None)
    assert np.diff(work.first_parts).tolist() == [1] * 8 + [8000 // 256 + 1]


def test_a_part_is_a_whole_number_of_blocks_and_the_window_is_not_cut() -> None:
    row = StepRow(BlockTable(list(range(2500)), 10_000), 1)
    assert not work_of([row], 256).split
    work = work_of([row], None, fewest=9)
    begins = work.plan[: work.items * ITEM].reshape(-1, ITEM)[:, 4]
    assert set((np.diff(begins) % BLOCK).tolist()) == {0}
