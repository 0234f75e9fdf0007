"""Who computes what in the next step: admission, chunks of prompts, preemption. No MLX."""

from bisect import insort
from collections.abc import Mapping

from mlxgpt.infer.engine.queue import Queue
from mlxgpt.infer.engine.room import Room
from mlxgpt.infer.engine.row import Row
from mlxgpt.infer.engine.sequence import Sequence
from mlxgpt.infer.engine.step_copies import StepCopies
from mlxgpt.infer.paged.blocks import Blocks, Copy
from mlxgpt.infer.paged.prefix_index import PrefixIndex

_TIDY_EVERY = 32
"""Steps between two looks at how scattered the texts lie."""


class Scheduler:
    """First come, first served; nobody starves.

    At most `max_num_seqs` run at once, and a step computes at most `max_step_tokens` tokens.
    Decoding comes first, prompts fill what is left in chunks; but all decoding texts go on in every
    step, and prompts get a block's worth of tokens, also where that is more than `max_step_tokens`.
    When blocks run out: first what only the prefix index keeps, then the latest comer is preempted;
    it is computed again later, from its tokens. The oldest running text goes on in every step.
    """

    def __init__(
        self,
        blocks: Blocks,
        prefixes: PrefixIndex | None,
        *,
        max_num_seqs: int,
        max_step_tokens: int,
        window: int | None,
    ) -> None:
        """`window` is how many tokens back, itself included, a token is seen by any layer."""
        self.preempted: list[Sequence] = []
        """Those that the last `schedule` preempted."""
        self.preemptions = 0
        self._room = Room(blocks, prefixes, window=window, max_step_tokens=max_step_tokens)
        self._running: list[Sequence] = []  # in order of arrival
        self._queue = Queue(self._room, blocks.block_size)
        self._max_num_seqs = max_num_seqs
        self._max_step_tokens = max_step_tokens
        self._least = min(blocks.block_size, max_step_tokens)
        self._started: dict[Sequence, int] = {}  # where the rows of this step start
        self._arrivals = 0
        self._steps = 0

    @property
    def running(self) -> tuple[Sequence, ...]:
        """The texts that hold blocks, in order of arrival."""
        return tuple(self._running)

    @property
    def waiting(self) -> tuple[Sequence, ...]:
        """The texts that are new, or were preempted, in order of arrival."""
        return tuple(self._queue)

    @property
    def shared_tokens(self) -> int:
        """Tokens of prompts that were found in the prefix index, each counted once."""
        return self._room.shared_tokens

    @property
    def recomputed_tokens(self) -> int:
        """Tokens that were computed more than once."""
        return self._room.recomputed_tokens

    def add(self, sequence: Sequence) -> None:
        """Queue a new text. Raises `ConfigError`, with the numbers, if it can never fit."""
        assert sequence.token_ids, "a text has at least one token"
        self._room.check(sequence)
        sequence.arrival = self._arrivals, sequence.choice
        self._arrivals += 1
        self._queue.put(sequence)

    def fork(self, row: Row, choice: Sequence, token_ids: list[int], finished: bool) -> None:
        """Let a further choice of a request begin: `token_ids` were chosen after the row's true
        tokens, the end of its prompt. The `commit` of a text that had no row, due before the row's.

        The choice shares the blocks of the prompt if there is a place to run, and is queued
        otherwise, next after its request.
        """
        parent = row.sequence
        assert parent in self._started, "a choice begins while the row is being computed"
        assert token_ids
        assert row.could_give(token_ids)
        assert not parent.generated
        choice.arrival = parent.arrival[0], choice.choice
        choice.token_ids += token_ids
        choice.computed = len(choice.token_ids) - 1
        if finished:
            return
        if len(self._running) < self._max_num_seqs:
            self._room.fork(parent, choice)
            insort(self._running, choice, key=lambda t: t.arrival)
        else:
            self._queue.put(choice)

    def abort(self, sequence: Sequence) -> None:
        """Take a text out, wherever it is; does nothing if it has left already."""
        if sequence in self._running:
            self._leave(sequence)
        elif sequence in self._queue:
            self._queue.remove(sequence)

    def forget_prefixes(self) -> None:
        """The weights have changed: share nothing that was computed so far with texts to come.

        Running texts keep what they have, and finish; what they compute is not shared either.
        """
        self._room.forget(self._running)

    def decoding(self) -> list[Sequence]:
        """Return the running texts that need one new token each: those a draft may be made for."""
        return [text for text in self._running if text.decoding]

    def schedule(self, drafts: Mapping[Sequence, list[int]]) -> tuple[list[Row], list[Copy]]:
        """Decide the next step and place its tokens; empty when nothing is left to do.

        Drafts are shortened or left out where there is no room for them. The copies are to be made
        before the step, all read before the first is written.
        """
        self._steps += 1
        self._started, self.preempted = {}, []
        copies = StepCopies()
        if self._steps % _TIDY_EVERY == 0:
            copies.add(self._room.tidy(self._running))
        decoding = self.decoding()
        guesses = self._within_budget(drafts, decoding)
        budget = self._max_step_tokens - len(decoding) - sum(map(len, guesses.values()))
        budget = self._go_on(set(decoding), max(budget, self._least), copies)
        for text, tokens in guesses.items():
            if text in self._started:
                guesses[text] = self._place_guesses(text, tokens, copies)
        if not self.preempted:
            self._admit(budget, copies)
        order = [text for text in decoding if text in self._started]
        order += [text for text in self._started if text not in guesses]
        rows = [Row.placed(t, self._started[t], guesses.get(t, [])) for t in order]
        return rows, copies.at_once()

    def commit(self, row: Row, token_ids: list[int], finished: bool) -> None:
        """Take over what a step gave: `token_ids` were chosen after the row's true tokens (none if
        it wanted no logits); cached guesses that are not among them are taken back.

        Does nothing if the text was aborted since it was scheduled.
        """
        text = row.sequence
        if text not in self._started:
            return
        assert row.could_give(token_ids), "a guess was taken that was not made"
        del self._started[text]
        text.token_ids += token_ids
        self._room.keep(text, row.start)
        if finished:
            self._leave(text)

    def _within_budget(
        self, drafts: Mapping[Sequence, list[int]], decoding: list[Sequence]
    ) -> dict[Sequence, list[int]]:
        """Return the guesses for each decoding text that the step, and its max_tokens, allow."""
        budget = self._max_step_tokens - len(decoding)
        if len(decoding) < len(self._running) or self._may_admit():
            budget -= self._least
        allowed = {}
        for text in decoding:
            most = min(text.params.max_tokens - text.generated - 1, budget)
            allowed[text] = list(drafts.get(text, []))[: max(0, most)]
            budget -= len(allowed[text])
        return allowed

    def _go_on(self, decoding: set[Sequence], budget: int, copies: StepCopies) -> int:
        """Place the next token of decoding texts, and chunks of the others; return the budget left.

        Strictly in order of arrival, so that whoever is preempted has not been placed.
        """
        place = 0
        while place < len(self._running):
            text = self._running[place]
            missing = len(text.token_ids) - text.table.length
            count = 1 if text in decoding else min(missing, budget)
            if count and self._place(text, count, copies) and text not in decoding:
                budget -= count
            place += 1
        return budget

    def _place(self, text: Sequence, count: int, copies: StepCopies) -> bool:
        """Place tokens, preempting whoever came last; False if that was the text itself."""
        start = text.table.length
        while (made := self._room.place(text, count)) is None:
            latest = self._running[-1]
            assert latest is not self._running[0], "a text that is alone always has room"
            self._preempt(latest)
            if latest is text:
                return False
        copies.add(made)
        self._started[text] = start
        return True

    def _place_guesses(self, text: Sequence, guesses: list[int], copies: StepCopies) -> list[int]:
        """Place guesses behind the true token, as far as that is possible without preemption."""
        for count in (len(guesses), min(len(guesses), self._room.in_last_block(text))):
            made = self._room.place(text, count) if count else []
            if made is not None:
                copies.add(made)
                return guesses[:count]
        return []

    def _preempt(self, text: Sequence) -> None:
        assert text not in self._started, "a text was preempted after its tokens had been placed"
        self._leave(text)
        self._queue.put(text)
        self.preempted.append(text)
        self.preemptions += 1

    def _leave(self, text: Sequence) -> None:
        self._running.remove(text)
        self._started.pop(text, None)
        self._room.release(text)

    def _may_admit(self) -> bool:
        return len(self._queue) > 0 and len(self._running) < self._max_num_seqs

    def _admit(self, budget: int, copies: StepCopies) -> None:
        """Let waiting texts in, in order, as long as there are places, tokens and blocks."""
        if budget <= 0 or not self._may_admit():
            return
        for text in self._queue.coming_in(self._running, self._started):
            self._room.count_recalled(text)
            insort(self._running, text, key=lambda t: t.arrival)
            count = min(len(text.token_ids) - text.table.length, budget)
            placed = self._place(text, count, copies)
            assert placed, "there was room"
            budget -= count
            if budget <= 0 or not self._may_admit():
                return
