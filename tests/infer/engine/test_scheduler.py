"""Each rule of the scheduler, with a few texts."""

from itertools import count, islice
from typing import Any

import pytest
from naive_blocks import NaiveBlocks, NaivePrefixIndex
from simulated_engine import Setting, Simulation, alone

from mlxgpt.errors import ConfigError
from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine.row import Row
from mlxgpt.infer.engine.scheduler import Scheduler
from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.paged.blocks import Blocks
from mlxgpt.infer.paged.prefix_index import PrefixIndex


class Bench:
    """A scheduler over blocks of 4, and texts none of whose tokens are alike."""

    def __init__(self, real: bool) -> None:
        self.real = real

    def build(
        self,
        capacity: int = 64,
        *,
        rows: int = 8,
        tokens: int = 16,
        window: int | None = None,
        sharing: bool = False,
    ) -> Scheduler:
        self.fresh = count(1000)
        self.blocks: Any = (Blocks if self.real else NaiveBlocks)(4, capacity)
        index: Any = PrefixIndex if self.real else NaivePrefixIndex
        self.prefixes: Any = index(self.blocks) if sharing else None
        self.scheduler = Scheduler(
            self.blocks, self.prefixes, max_num_seqs=rows, max_step_tokens=tokens, window=window
        )
        return self.scheduler

    def text(
        self, prompt: int | list[int], max_tokens: int = 20, choice: int = 0, add: bool = True
    ) -> Sequence:
        """Return a text whose prompt has this length, or these tokens; queued if `add`."""
        ids = [next(self.fresh) for _ in range(prompt)] if isinstance(prompt, int) else list(prompt)
        made = Sequence(0, choice, len(ids), ids, SamplingParams(max_tokens=max_tokens))
        if add:
            self.scheduler.add(made)
        return made

    def rows(self, drafts: dict[Sequence, list[int]] | None = None) -> list[Row]:
        return self.scheduler.schedule(drafts or {})[0]

    def commit(self, rows: list[Row]) -> None:
        """Give each row a new token, refuse all guesses, and end those with max_tokens."""
        for row in rows:
            new = [next(self.fresh)] if row.wants_logits else []
            text = row.sequence
            ends = bool(new) and text.generated + 1 == text.params.max_tokens
            self.scheduler.commit(row, new, ends)

    def step(self, drafts: dict[Sequence, list[int]] | None = None) -> dict[Sequence, int]:
        """Return how many tokens of which text were computed."""
        rows = self.rows(drafts)
        self.commit(rows)
        return {row.sequence: len(row.token_ids) for row in rows}


@pytest.fixture(params=["naive", "real"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param == "real")


def test_a_long_prompt_does_not_stall_those_that_decode(bench: Bench) -> None:
    bench.build(tokens=16)
    first, second = bench.text(3), bench.text(5)
    assert bench.step() == {first: 3, second: 5}
    long, late = bench.text(40, max_tokens=1), bench.text(4)
    assert bench.step() == {first: 1, second: 1, long: 14}
    assert bench.step() == {first: 1, second: 1, long: 14}
    rows = bench.rows()
    assert [row.sequence for row in rows] == [first, second, long, late]
    assert [row.start for row in rows] == [5, 7, 28, 0]
    assert [len(row.token_ids) for row in rows] == [1, 1, 12, 2]
    assert [row.wants_logits for row in rows] == [True, True, True, False]
    bench.commit(rows)  # the long one ends
    assert bench.step() == {first: 1, second: 1, late: 2}


def test_all_that_decode_go_on_and_a_prompt_gets_a_block(bench: Bench) -> None:
    bench.build(rows=8, tokens=4)
    texts = [bench.text(2) for _ in range(6)]
    for _ in range(6):
        bench.step()
    late = bench.text(9)
    assert bench.step() == dict.fromkeys(texts, 1) | {late: 4}  # 10 tokens, with a limit of 4
    assert bench.step() == dict.fromkeys(texts, 1) | {late: 4}


def test_a_step_is_smaller_than_a_block(bench: Bench) -> None:
    bench.build(tokens=1)
    first = bench.text(2)
    second = bench.text(2)
    assert bench.step() == {first: 1}
    for _ in range(3):
        assert bench.step() == {first: 1, second: 1}


def test_guesses_never_go_past_max_tokens(bench: Bench) -> None:
    bench.build()
    text = bench.text(3, max_tokens=4)
    bench.step()
    (row,) = bench.rows({text: [1, 2, 3, 4, 5]})
    assert (row.start, row.token_ids, row.drafted) == (3, [text.token_ids[3], 1, 2], 2)
    bench.scheduler.commit(row, [1, 2, 7], finished=True)
    assert text.token_ids[4:] == [1, 2, 7]
    assert bench.blocks.available == 64


def test_guesses_give_way_to_the_limit_of_a_step(bench: Bench) -> None:
    bench.build(tokens=12)
    a, b = bench.text(3), bench.text(3)
    bench.step()
    drafts = {a: [1] * 7, b: [2] * 7}
    assert bench.step(drafts) == {a: 8, b: 4}
    prompt = bench.text(30)
    assert bench.step(drafts) == {a: 7, b: 1, prompt: 4}  # a block's worth for who waits
    assert bench.step(drafts) == {a: 7, b: 1, prompt: 4}  # and for who is at it


def test_guesses_give_way_to_blocks_before_anybody_is_preempted(bench: Bench) -> None:
    bench.build(capacity=4)
    a, b = bench.text(6, 4), bench.text(6, 4)
    bench.step()
    assert bench.blocks.available == 0
    assert bench.step({a: [1, 1, 1], b: [2]}) == {a: 2, b: 2}  # to the end of their blocks
    assert bench.scheduler.preemptions == 0
    assert bench.blocks.available == 0
    assert [t.table.length for t in (a, b)] == [7, 7]  # refused


def test_guesses_may_have_what_only_the_index_keeps(bench: Bench) -> None:
    bench.build(capacity=4, sharing=True)
    bench.text(8, 1)
    bench.step()
    assert bench.prefixes.evictable == 2
    text = bench.text(7, 9)
    bench.step()
    assert bench.blocks.available == 0
    assert bench.step({text: [1] * 6}) == {text: 7}
    assert bench.prefixes.evictable == 0 or bench.blocks.available == 0


def test_guesses_do_not_take_the_block_of_another_texts_token(bench: Bench) -> None:
    bench.build(capacity=4)
    a, b = bench.text(5, 6), bench.text(4, 6)
    bench.step()
    assert bench.blocks.available == 1
    assert bench.step({a: [1, 2, 3, 4]}) == {a: 3, b: 1}
    assert bench.scheduler.preemptions == 0


def test_guesses_that_are_not_taken_leave_the_cache(bench: Bench) -> None:
    bench.build()
    text = bench.text(3)
    bench.step()
    (row,) = bench.rows({text: [5, 6, 7, 8]})
    assert text.table.length == 8
    bench.scheduler.commit(row, [5, 6, 99], finished=False)
    assert text.table.length == 6 == len(text.token_ids) - 1
    assert bench.blocks.available == 64 - 2
    assert text.decoding
    (row,) = bench.rows()
    assert (row.start, row.token_ids) == (6, [99])


def test_tokens_that_were_not_guessed_are_a_mistake(bench: Bench) -> None:
    bench.build()
    text = bench.text(3)
    bench.step()
    (row,) = bench.rows({text: [5, 6]})
    for wrong in ([6, 6, 1], [5, 6, 1, 1], [5, 5, 1], []):
        with pytest.raises(AssertionError):
            bench.scheduler.commit(row, wrong, finished=False)


def test_who_comes_in_has_blocks_for_all_its_tokens_and_one_more(bench: Bench) -> None:
    bench.build(capacity=5)
    first, second, third = bench.text(8, 2), bench.text(8, 2), bench.text(1, 2)
    # Three blocks are left, but the first needs one of them for its next token.
    assert bench.step() == {first: 8}
    assert bench.step() == {first: 1}  # the third would fit, and does not pass the second
    assert bench.step() == {second: 8, third: 1}


def test_no_more_run_than_may(bench: Bench) -> None:
    bench.build(rows=2)
    texts = [bench.text(2, 2) for _ in range(3)]
    assert bench.step() == {texts[0]: 2, texts[1]: 2}
    assert bench.step() == {texts[0]: 1, texts[1]: 1}
    assert bench.step() == {texts[2]: 2}


def test_a_beginning_is_computed_once(bench: Bench) -> None:
    """Who begins alike waits, chunk for chunk; others pass."""
    bench.build(tokens=8, sharing=True)
    head = list(range(16))
    first = bench.text([*head, 100, 101], 3)
    alike = [bench.text([*head, 200 + i], 3) for i in range(2)]
    partly = bench.text([*head[:8], 300, 301], 3)
    other = bench.text(4, 3)
    assert bench.step() == {first: 8}
    assert partly.table.length == 0
    assert bench.step() == {first: 8}  # all the budget, though one might come in now
    assert bench.step() == {first: 2, alike[0]: 1, alike[1]: 1, partly: 2, other: 2}
    assert bench.scheduler.shared_tokens == 16 + 16 + 8
    blocks = {b for t in (first, *alike) for b in t.table.blocks}
    assert len(blocks) == 4 + 3  # the beginning lies there once


def test_others_pass_whoever_waits_for_a_beginning(bench: Bench) -> None:
    bench.build(tokens=20, sharing=True)
    head = list(range(12))
    first, alike, other = bench.text([*head, 100], 2), bench.text([*head, 200], 2), bench.text(4, 2)
    assert bench.step() == {first: 13, other: 4}
    assert bench.step() == {first: 1, other: 1, alike: 1}


def test_less_than_a_block_in_common_is_no_reason_to_wait(bench: Bench) -> None:
    bench.build(sharing=True)
    first, second = bench.text([1, 2, 3, 4]), bench.text([1, 2, 3, 4])
    third = bench.text([1, 2, 3, 5, 6])
    # Of four tokens one is computed anyway, and three are no block.
    assert bench.step() == {first: 4, second: 4, third: 5}
    assert bench.scheduler.shared_tokens == 0


def test_without_an_index_nobody_waits_for_a_beginning(bench: Bench) -> None:
    bench.build(tokens=24)
    first, alike, other = bench.text(list(range(12))), bench.text(list(range(12))), bench.text(2)
    assert bench.step() == {first: 12, alike: 12}
    assert bench.step() == {first: 1, alike: 1, other: 2}


def test_nobody_waits_for_the_beginning_of_a_later_text(bench: Bench) -> None:
    scheduler = bench.build(tokens=8, sharing=True)
    head = list(range(20))
    later, earlier = bench.text(head), bench.text([*head, 1], add=False)
    for _ in range(2):
        assert bench.step() == {later: 8}
    earlier.arrival = -1, 0
    scheduler._queue.put(earlier)
    assert bench.step() == {later: 4, earlier: 4}


def test_who_waits_for_a_beginning_goes_on_when_its_text_leaves(bench: Bench) -> None:
    bench.build(tokens=8, sharing=True)
    head = list(range(20))
    first, alike = bench.text(head, 3), bench.text([*head, 1], 3)
    bench.step()
    bench.scheduler.abort(first)
    assert bench.step() == {alike: 8}
    assert alike.table.length == 16  # what was computed is not lost


def test_who_leaves_while_it_waits_for_a_beginning_is_forgotten(bench: Bench) -> None:
    bench.build(tokens=12, sharing=True)
    first, alike = bench.text(list(range(10)), 3), bench.text(list(range(10)), 3)
    assert bench.step() == {first: 10}
    assert bench.scheduler._queue._followed == {alike: (first, 8)}
    bench.scheduler.abort(alike)
    assert bench.scheduler._queue._followed == {}


def test_the_same_prompt_again_computes_one_token_at_least(bench: Bench) -> None:
    bench.build(sharing=True)
    ids = list(range(8))
    for computed in (8, 4, 4):
        text = bench.text(ids, 1)
        assert bench.step() == {text: computed}
    assert bench.scheduler.shared_tokens == 8
    assert bench.scheduler.recomputed_tokens == 0


def test_the_latest_comer_is_preempted_and_keeps_its_place_and_tokens(bench: Bench) -> None:
    bench.build(capacity=5, tokens=32)
    a, b, c = (bench.text(7, 9) for _ in range(3))
    for _ in range(2):  # to 8 tokens: two blocks each
        assert list(bench.step()) == [a, b]
    before = list(b.token_ids)
    assert bench.step() == {a: 1}  # a ninth takes the last block, and for b there is none
    assert bench.scheduler.preempted == [b]
    assert bench.scheduler.waiting == (b, c)
    assert b.token_ids == before
    assert (b.table.blocks, b.table.length) == ([], 0)
    while bench.scheduler.running == (a,):
        bench.step()
    assert bench.step() == {b: len(before), c: 7}  # the prompt and all that was written
    assert bench.scheduler.recomputed_tokens == len(before) - 1
    assert bench.scheduler.preemptions == 1


def test_what_only_the_index_keeps_goes_before_anybody_is_preempted(bench: Bench) -> None:
    bench.build(capacity=6, sharing=True)
    bench.text(8, 1)
    bench.step()
    a, b = bench.text(6, 8), bench.text(6, 8)
    bench.step()
    for _ in range(2):
        bench.step()
    assert bench.step() == {a: 1, b: 1}
    assert bench.scheduler.preemptions == 0


def test_the_oldest_goes_on_in_every_step(bench: Bench) -> None:
    bench.build(capacity=6, tokens=32)
    a, b, c = bench.text(3, 20), bench.text(4, 9), bench.text(3, 9)
    assert bench.step() == {a: 3, b: 4, c: 3}
    left = [a, b, c]
    while left:
        assert left[0] in bench.step()
        left = [text for text in left if text.generated < text.params.max_tokens]
    assert bench.scheduler.preemptions


def test_an_older_prompt_does_not_stall_a_younger_text_that_decodes(bench: Bench) -> None:
    bench.build(tokens=12, sharing=True)
    head = list(range(8))
    first, waits, quick = bench.text(head, 1), bench.text([*head, *range(50, 80)]), bench.text(2)
    assert bench.step() == {first: 8, quick: 2}
    for _ in range(2):
        assert bench.step() == {quick: 1, waits: 11}


def test_an_older_prompt_takes_the_blocks_of_a_younger_text_that_decodes(bench: Bench) -> None:
    bench.build(capacity=8, tokens=5, sharing=True)
    head = list(range(8))
    first, waits, quick = bench.text(head, 1), bench.text([*head, *range(50, 69)], 1), bench.text(2)
    assert [bench.step() for _ in range(2)] == [{first: 5}, {first: 3, quick: 2}]
    for _ in range(4):
        assert bench.step() == {quick: 1, waits: 4}
    assert bench.step() == {waits: 3}
    assert bench.scheduler.preempted == [quick]
    assert quick.generated == 5


@pytest.mark.parametrize("window", [None, 1000])
def test_what_can_never_fit_is_refused_with_the_numbers(bench: Bench, window: int | None) -> None:
    scheduler = bench.build(capacity=6, window=window)
    bench.text(20, 4)
    with pytest.raises(ConfigError, match=r"20.*5.*25 tokens.*24.*--kv-memory.*max_tokens"):
        bench.text(20, 5)
    assert len(scheduler.waiting) == 1
    while scheduler.running or scheduler.waiting:
        assert bench.step()
    assert bench.blocks.available == 6


def test_with_a_window_a_text_of_any_length_fits(bench: Bench) -> None:
    bench.build(capacity=5, tokens=8, window=8)
    text = bench.text(30, 30)
    held = []
    while text.generated != 30:
        assert bench.step()
        held.append(len(text.table.blocks))
        assert (
            text.table.dropped == 0
            if text.generated == 30
            else (text.table.dropped == max(0, text.table.length - 7) // 4 * 4)
        )
    assert max(held) <= 3
    bench.build(capacity=4, tokens=8, window=8)
    with pytest.raises(ConfigError, match=r"20 tokens at once.*window 8.*16.*max_step_tokens"):
        bench.text(30, 30)
    bench.text(3, 13)


def test_chunks_are_known_to_others_as_they_are_complete(bench: Bench) -> None:
    bench.build(tokens=8, sharing=True)
    ids = list(range(30))
    text = bench.text(ids)
    rows = bench.rows()
    table = bench.prefixes.match(ids)
    assert table.length == 0  # placed, not computed
    bench.blocks.free(table)
    bench.commit(rows)
    table = bench.prefixes.match(ids)
    assert (table.length, table.blocks) == (8, text.table.blocks)
    bench.blocks.free(table)


def test_what_other_weights_computed_is_not_known_to_others(bench: Bench) -> None:
    scheduler = bench.build(tokens=16, rows=3, sharing=True)
    ids = list(range(10))
    first, old = bench.text(14, 1), bench.text(ids, 4)
    assert bench.step() == {first: 14, old: 2}
    old_choice, alike = bench.text(ids, 4, choice=1, add=False), bench.text([*ids[:5], 99], 1)
    scheduler.forget_prefixes()
    rows = bench.rows()
    assert [(row.sequence, row.start) for row in rows] == [(old, 2), (alike, 0)]  # no wait
    scheduler.fork(rows[0], old_choice, [7], finished=False)
    bench.commit(rows)
    bench.step()
    bench.step()
    new = bench.text(ids)
    assert bench.step()[new] == 6  # four tokens are those of the new one


def test_guesses_are_never_known_to_others(bench: Bench) -> None:
    bench.build(sharing=True)
    text = bench.text([1, 2, 3])
    bench.step()
    (row,) = bench.rows({text: [4, 5, 6, 7]})
    bench.scheduler.commit(row, [77], finished=False)
    for ids in ([1, 2, 3, text.token_ids[3], 4, 5, 6, 7, 0], [*text.token_ids, 0]):
        table = bench.prefixes.match(ids)
        assert table.length == 4
        bench.blocks.free(table)


@pytest.mark.parametrize("length", [8, 10])
def test_choices_share_the_blocks_of_the_prompt(bench: Bench, length: int) -> None:
    scheduler = bench.build(rows=3)
    text = bench.text(length)
    behind = bench.text(2)
    prompt = list(text.token_ids)
    choices = [bench.text(prompt, choice=i, add=False) for i in (1, 2)]
    rows = bench.rows()
    for token, choice in enumerate(choices):
        scheduler.fork(rows[0], choice, [token], finished=False)
    bench.commit(rows)
    assert scheduler.running == (text, choices[0], behind)  # places for one
    assert scheduler.waiting == (choices[1],)
    assert choices[0].table.blocks == text.table.blocks
    assert choices[0].token_ids == [*prompt, 0]
    assert choices[0].decoding
    rows, copies = scheduler.schedule({})
    assert [row.sequence for row in rows] == [text, choices[0], behind]
    assert [copy.count for copy in copies] == ([2] if length == 10 else [])
    assert text.table.blocks[:2] == choices[0].table.blocks[:2]
    assert not set(text.table.blocks[2:]) & set(choices[0].table.blocks[2:])
    bench.commit(rows)
    scheduler.abort(text)
    assert bench.step() == {choices[0]: 1, behind: 1, choices[1]: length + 1}
    assert scheduler.recomputed_tokens == length
    for each in (*choices, behind):
        scheduler.abort(each)
    assert bench.blocks.available == 64


def test_a_choice_may_end_at_once_and_may_take_guesses(bench: Bench) -> None:
    scheduler = bench.build(tokens=8)
    text = bench.text(9)
    prompt = list(text.token_ids)
    ended, goes_on = (bench.text(prompt, choice=i, add=False) for i in (1, 2))
    bench.step()
    (row,) = bench.rows({text: [5, 6, 7]})  # one token of the prompt is left
    assert (row.start, row.drafted) == (8, 3)
    scheduler.fork(row, ended, [3], finished=True)
    scheduler.fork(row, goes_on, [5, 6, 1], finished=False)
    scheduler.commit(row, [5, 2], finished=False)
    assert scheduler.running == (text, goes_on)
    assert ended.token_ids == [*prompt, 3]
    assert (goes_on.table.length, text.table.length) == (11, 10)
    assert bench.step() == {text: 1, goes_on: 1}


def test_a_text_may_leave_from_anywhere(bench: Bench) -> None:
    scheduler = bench.build(capacity=8, tokens=8, rows=2)
    decodes, prefills, waits, ends = bench.text(2), bench.text(12), bench.text(2), bench.text(2, 1)
    bench.step()
    rows = bench.rows()
    scheduler.abort(prefills)  # between the two
    bench.commit(rows)
    assert prefills.table.blocks == []
    scheduler.abort(waits)
    scheduler.abort(waits)
    scheduler.abort(decodes)
    assert bench.step() == {ends: 2}
    scheduler.abort(ends)
    assert (scheduler.running, scheduler.waiting) == ((), ())
    assert bench.step() == {}
    assert bench.blocks.available == 8
    text = bench.text(2)
    assert bench.step() == {text: 2}


def test_scattered_texts_are_moved_together_before_tokens_are_placed() -> None:
    bench = Bench(real=False)  # hands out blocks in turn, so that two texts are intertwined
    scheduler = bench.build(capacity=64, tokens=64)
    one, other = bench.text(3, 100), bench.text(3, 100)
    tidied: list[tuple[int, list[int]]] = []

    def tidy(tables: Any, most: int) -> Any:
        tidied.append((scheduler._steps, [t.length for t in tables]))
        return []

    bench.blocks.tidy = tidy
    for step in range(1, 65):
        if step == 40:
            scheduler.abort(other)
        before = list(one.table.blocks)
        rows, copies = scheduler.schedule({})
        if step == 64:  # 17 blocks with holes between most of them
            moved = {c.source: c.target for c in copies}
            assert len(moved) >= 8
            assert one.table.blocks == [moved.get(b, b) for b in before]
        else:
            assert step == 32 or one.table.blocks[: len(before)] == before
        bench.commit(rows)
    assert tidied == [(32, [33, 33]), (64, [65])]


def test_two_requests_in_less_room_than_both_need(bench: Bench) -> None:
    """Each gets what it gets alone, and nothing is counted twice."""
    prompts = (list(range(i, i + 5)) for i in count())
    one, other, *_ = islice((p for p in prompts if len(alone(p, 0, 8)) == 13), 2)
    cases = ((False, 6, 0, 0), (False, 5, 1, 8), (True, 5, 1, 0), (False, 4, 1, 7))
    for sharing, capacity, preempted, again in cases:
        setting = Setting(capacity=capacity, sharing=sharing, real=bench.real)
        simulation = Simulation(setting)
        first, second = simulation.join(one, 8), simulation.join(other, 8)
        simulation.drain()
        assert simulation.finished == [first, second]
        assert simulation.scheduler.preemptions == preempted
        assert simulation.scheduler.recomputed_tokens == again
        assert simulation.scheduler.shared_tokens == 0
