"""An engine whose network is a pure function of the text, and whose pool knows what lies in each
slot: drives a scheduler, and checks its laws in every step."""

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from naive_blocks import NaiveBlocks, NaivePrefixIndex

from mlxgpt.infer import SamplingParams
from mlxgpt.infer.engine.scheduler import Row, Scheduler
from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.paged.blocks import Blocks
from mlxgpt.infer.paged.prefix_index import PrefixIndex

END = 0
IDS = 50


@cache
def up_to(max_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens)


def states(token_ids: list[int]) -> list[int]:
    """Return, for each token, a number that stands for the text up to and with it."""
    return list(accumulate(token_ids, lambda state, token: hash((state, token)), initial=1))[1:]


def next_token(state: int, choice: int) -> int:
    """Return what comes next; in two cases of three, all choices say the same."""
    return hash((state, 0 if state % 3 else choice, 7)) % IDS


def alone(prompt: list[int], choice: int, max_tokens: int) -> list[int]:
    """Return what a text is to become, its prompt included."""
    token_ids, state = list(prompt), states(prompt)[-1]
    for _ in range(max_tokens):
        token_ids.append(next_token(state, choice))
        state = hash((state, token_ids[-1]))
        if token_ids[-1] == END:
            break
    return token_ids


@dataclass(frozen=True)
class Setting:
    """What is simulated."""

    block_size: int = 4
    capacity: int = 6
    max_num_seqs: int = 4
    max_step_tokens: int = 8
    window: int | None = None
    sharing: bool = True
    real: bool = False
    """The blocks and the index of the package, not the naive ones."""


@dataclass
class Simulation:
    """A scheduler and all that is around it."""

    setting: Setting
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    right: float = 0.5
    """Share of the guesses that are right."""
    most_guesses: int = 0

    def __post_init__(self) -> None:
        s = self.setting
        self.blocks: Any = (Blocks if s.real else NaiveBlocks)(s.block_size, s.capacity)
        index: Any = PrefixIndex if s.real else NaivePrefixIndex
        self.prefixes: Any = index(self.blocks) if s.sharing else None
        self.scheduler = Scheduler(
            self.blocks,
            self.prefixes,
            max_num_seqs=s.max_num_seqs,
            max_step_tokens=s.max_step_tokens,
            window=s.window,
        )
        self.least = min(s.block_size, s.max_step_tokens)
        self.slots: dict[int, tuple[int, int]] = {}  # the position, and the text up to there
        self.versions: dict[int, int] = {}  # with which weights
        self.version = 0
        self.texts: list[Sequence] = []  # those that have neither ended nor been aborted
        self.choices: dict[Sequence, list[Sequence]] = {}
        self.expected: dict[Sequence, list[int]] = {}
        self.finished: list[Sequence] = []
        self.first_tokens: list[Sequence] = []  # in the order in which prompts were complete
        self.requests = self.steps = 0
        self.events: Counter[str] = Counter()
        self.computed = 0  # true tokens of committed rows
        self.started_with = 0  # tokens that choices had when they began
        self.gone = 0  # `computed` of texts that have left
        self.open: dict[Sequence, Row] = {}  # rows that have not been committed

    @property
    def waiting_choices(self) -> set[Sequence]:
        """Texts whose prompt is still to be computed by the first of their request."""
        return {choice for more in self.choices.values() for choice in more}

    # What may happen

    def join(self, prompt: list[int], max_tokens: int, n: int = 1) -> Sequence:
        made = [
            Sequence(self.requests, i, len(prompt), list(prompt), up_to(max_tokens))
            for i in range(n)
        ]
        self.scheduler.add(made[0])
        self.requests += 1
        self.texts += made
        self.choices[made[0]] = made[1:]
        for text in made:
            self.expected[text] = alone(prompt, text.choice, max_tokens)
        self.check_blocks()
        return made[0]

    def abort(self, text: Sequence) -> None:
        for each in (text, *self.choices.pop(text, [])):
            self.scheduler.abort(each)
            self.scheduler.abort(each)
            self._gone(each)
        self.check_blocks()

    def renew(self) -> None:
        """Change the weights, though not so that anybody says something else."""
        self.version += 1
        self.scheduler.forget_prefixes()
        assert self.prefixes is None or self.prefixes.evictable == 0
        self.check_blocks()

    def step(self, abort_within: float = 0.0) -> list[Row]:
        """Schedule, compute, commit; with some probability, texts are aborted in between."""
        drafts = {t: self.guesses(t) for t in self.scheduler.decoding()}
        decoding = set(drafts)
        before = {t: t.table.length for t in self.scheduler.running}
        waiting = list(self.scheduler.waiting)
        rows, copies = self.scheduler.schedule(drafts)
        self.steps += 1
        self.events["copies"] += len(copies)
        self.check_rows(rows, drafts, before)
        self.check_order(rows, decoding, before, waiting)
        self.open = {row.sequence: row for row in rows}
        self.copy(copies)
        for row in rows:
            table = row.sequence.table
            if row.sequence not in before:
                recalled = self.blocks.slots(table, table.dropped, row.start)
                assert {self.versions[slot] for slot in recalled} <= {self.version}
        self.compute(rows)
        self.check_blocks()
        for row in rows:
            if abort_within and self.rng.random() < abort_within:
                self.abort(row.sequence)
                self.events["aborted within"] += 1
        for row in rows:
            self.commit(row)
        self.check_blocks()
        return rows

    def drain(self) -> None:
        """Step until nothing is left. Each step brings one text on at least, for good."""
        bound = 1 + sum(t.longest for t in self.texts)
        while self.texts:
            assert self.step(), "texts wait, and none goes on"
            bound -= 1
            assert bound >= 0, "texts wait for ever"
        assert self.scheduler.running == self.scheduler.waiting == ()
        assert self.step() == []
        assert self.scheduler._queue._followed == {}
        if self.prefixes is not None:
            assert self.blocks.available + self.prefixes.evictable == self.setting.capacity
            self.prefixes.clear()
        assert self.blocks.available == self.setting.capacity

    # The engine's work

    def guesses(self, text: Sequence) -> list[int]:
        """Return guesses, right or wrong, sometimes more than are allowed."""
        made: list[int] = []
        for _ in range(self.rng.randint(0, self.most_guesses)):
            token = next_token(states(text.token_ids + made)[-1], text.choice)
            wrong = self.rng.random() >= self.right
            made.append((token + 1) % IDS if wrong else token)
        return made

    def copy(self, copies: list[Any]) -> None:
        """As the pool does it: all is read before the first is written."""
        size = self.setting.block_size
        assert len({c.target for c in copies}) == len(copies)
        slots = [(c.source * size + i, c.target * size + i) for c in copies for i in range(c.count)]
        nothing = -1, -1
        read = [(t, self.slots.get(s, nothing), self.versions.get(s, -1)) for s, t in slots]
        for slot, content, version in read:
            self.slots[slot], self.versions[slot] = content, version

    def compute(self, rows: list[Row]) -> None:
        """Store what the rows compute, then look at all that each of them sees."""
        written: set[int] = set()
        for row in rows:
            whole = row.sequence.token_ids[: row.start] + row.token_ids
            known = states(whole)
            slots = self.blocks.slots(row.sequence.table, row.start, len(whole))
            assert len(slots) == len(row.token_ids)
            for position, slot in enumerate(slots, start=row.start):
                assert slot not in written, "two tokens in one place"
                written.add(slot)
                self.slots[slot] = position, known[position]
                self.versions[slot] = self.version
        for row in rows:
            table, window = row.sequence.table, self.setting.window
            begin = 0 if window is None else max(0, row.start + 1 - window)
            assert table.dropped <= begin
            self.check_content(row.sequence)
            written_blocks = set(
                table.blocks[(row.start - table.dropped) // self.setting.block_size :]
            )
            for other in self.scheduler.running:
                assert other.table is table or not written_blocks & set(other.table.blocks)

    def commit(self, row: Row) -> None:
        text = row.sequence
        chosen, finished = self.choose(row, text) if row.wants_logits else ([], False)
        if row.wants_logits and not text.generated and text in self.texts:
            self.first_tokens.append(text)
            for choice in self.choices.pop(text, []):
                self.begin(row, choice)
        alive, taken = text in self.texts, max(0, len(chosen) - 1)
        self.scheduler.commit(row, chosen, finished)
        self.open.pop(text, None)
        if alive:
            self.computed += len(row.token_ids) - row.drafted + taken
            self.events["guesses taken"] += taken
            self.events["guesses refused"] += row.drafted - taken
            if finished:
                self._end(text)
        else:
            assert text.table.blocks == []

    def choose(self, row: Row, text: Sequence) -> tuple[list[int], bool]:
        """Return what a text says after the row's true tokens, and whether it ends with that."""
        whole = row.sequence.token_ids[: row.start] + row.token_ids
        known, chosen, finished = states(whole), [], False
        for place in range(len(whole) - row.drafted - 1, len(whole)):
            chosen.append(next_token(known[place], text.choice))
            finished = chosen[-1] == END or text.generated + len(chosen) == text.params.max_tokens
            if finished or place + 1 == len(whole) or whole[place + 1] != chosen[-1]:
                break
        return chosen, finished

    def begin(self, row: Row, choice: Sequence) -> None:
        """Give a further choice its first tokens."""
        chosen, finished = self.choose(row, choice)
        self.scheduler.fork(row, choice, chosen, finished)
        self.started_with += len(choice.token_ids) - 1
        self.events["choices that forked" if choice.table.blocks else "choices that queued"] += 1
        self.events["choices with guesses"] += len(chosen) > 1
        if finished:
            self._end(choice)

    def _end(self, text: Sequence) -> None:
        assert text.token_ids == self.expected[text]
        self.finished.append(text)
        self._gone(text)

    def _gone(self, text: Sequence) -> None:
        self.open.pop(text, None)
        if text in self.texts:
            self.texts.remove(text)
            self.gone += text.computed

    # The laws

    def check_rows(
        self, rows: list[Row], drafts: dict[Sequence, list[int]], before: dict[Sequence, int]
    ) -> None:
        """Each row is consistent with its text and its table, and the step with its limits."""
        assert len({row.sequence for row in rows}) == len(rows)
        for row in rows:
            text = row.sequence
            true = len(row.token_ids) - row.drafted
            assert true >= 1
            if text in before:
                assert row.start == before[text]
            assert row.token_ids[:true] == text.token_ids[row.start : row.start + true]
            assert row.token_ids[true:] == drafts.get(text, [])[: row.drafted]
            assert row.wants_logits == (row.start + true == len(text.token_ids))
            assert row.wants_logits or not row.drafted
            assert text.table.length == row.start + len(row.token_ids)
            assert text.generated + row.drafted < text.params.max_tokens
            assert text in self.scheduler.running
        single = sum(row.sequence in drafts for row in rows)
        total = sum(len(row.token_ids) for row in rows)
        assert total <= max(self.setting.max_step_tokens, single + self.least)
        assert len(self.scheduler.running) <= self.setting.max_num_seqs
        running = self.scheduler.running
        self.events["overshoot"] += total > self.setting.max_step_tokens
        self.events["drafts cut"] += sum(
            row.drafted < len(drafts.get(row.sequence, [])) for row in rows
        )
        assert list(running) == sorted(running, key=lambda t: t.arrival)

    def check_order(
        self,
        rows: list[Row],
        decoding: set[Sequence],
        before: dict[Sequence, int],
        waiting: list[Sequence],
    ) -> None:
        """First come, first served."""
        row_of = {row.sequence: row for row in rows}
        running, preempted = self.scheduler.running, self.scheduler.preempted
        self.events["preempted"] += len(preempted)
        assert not set(preempted) & row_of.keys()
        if self.texts:
            assert running[0] in row_of, "the oldest does not go on"
        assert decoding - set(preempted) <= row_of.keys(), "a decoding text has to wait"
        if preempted:  # the latest of those that ran, and nobody comes in
            kept = [t for t in before if t in running]
            assert len(kept) + len(preempted) == len(before)
            assert max(t.arrival for t in kept) < min(t.arrival for t in preempted)
            assert len(running) == len(kept)
        prompts = [t for t in running if t in before and t not in decoding]
        prompts += [t for t in running if t not in before]
        for earlier, later in pairwise(prompts):
            if later in row_of:
                assert row_of[earlier].wants_logits, "a chunk is cut for one who came later"
        if any(t not in decoding for t in before if t in running):
            taken = sum(len(row_of[t].token_ids) for t in prompts if t in row_of)
            left = sum(len(t.token_ids) - before[t] for t in prompts if t in before)
            assert taken >= min(left, self.least), "prompts do not go on"
        for text in waiting:
            if text not in running:
                for new in running:
                    if new not in before and new.arrival > text.arrival:
                        assert self.is_coming(text, row_of), "overtaken without a reason"
                        self.events["passed"] += 1
        if self.prefixes is None and not self.started_with:
            served = [t.arrival for t in running]
            assert not served or all(t.arrival > served[-1] for t in self.scheduler.waiting)
            order = [t.arrival for t in self.first_tokens]
            assert order == sorted(order), "a prompt was complete before an earlier one"

    def is_coming(self, text: Sequence, row_of: dict[Sequence, Row]) -> bool:
        """Whether an earlier text computes, now or later, what this one begins with."""
        size = self.setting.block_size
        for ahead in self.scheduler.running:
            start = row_of[ahead].start if ahead in row_of else ahead.table.length
            shared = 0
            for a, b in zip(ahead.token_ids, text.token_ids[:-1], strict=False):
                if a != b:
                    break
                shared += 1
            if ahead.arrival < text.arrival and start < shared // size * size:
                return True
        return False

    def check_blocks(self) -> None:
        """No block is lost or given out twice, and every table reads as its text."""
        running = self.scheduler.running
        held: set[int] = set()
        for text in running:
            table = text.table
            assert len(set(table.blocks)) == len(table.blocks)
            held |= set(table.blocks)
            self.check_content(text)
        for text in self.scheduler.waiting:
            assert text.table.blocks == []
            assert text.table.length == text.table.dropped == 0
        kept = 0 if self.prefixes is None else self.prefixes.evictable
        assert self.blocks.available + kept + len(held) == self.setting.capacity
        present = set(running) | set(self.scheduler.waiting)
        assert len(present) == len(running) + len(self.scheduler.waiting)
        assert present | self.waiting_choices == set(self.texts)
        if not self.open:
            true = self.computed - self.scheduler.recomputed_tokens + self.scheduler.shared_tokens
            counted = self.gone + sum(t.computed for t in present)
            assert true + self.started_with == counted

    def check_content(self, text: Sequence) -> None:
        table, row = text.table, self.open.get(text)
        whole = text.token_ids if row is None else text.token_ids[: row.start] + row.token_ids
        known = states(whole)
        slots = self.blocks.slots(table, table.dropped, table.length)
        for position, slot in enumerate(slots, start=table.dropped):
            assert self.slots.get(slot) == (position, known[position]), "a wrong or stale token"
