"""Guesses from a second, smaller model with a cache of its own, for many texts together."""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from mlxgpt.config import require
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.infer.network.network import network_for
from mlxgpt.infer.paged.blocks import Blocks, BlockTable
from mlxgpt.infer.paged.by_device import step_attention
from mlxgpt.infer.paged.memory import blocks_within, whole_window
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow
from mlxgpt.infer.sampling import (
    Context,
    can_look_ahead,
    choose,
    draw,
    next_logprobs,
    uniform,
)
from mlxgpt.infer.speculative.proposer import Draft
from mlxgpt.model import GPT

if TYPE_CHECKING:
    from mlxgpt.infer.engine.sequence import Sequence


@dataclass(eq=False)
class _Followed:
    """How far the draft model has read a text: `true` of its tokens, then guesses of its own."""

    table: BlockTable = field(default_factory=BlockTable)
    true: int = 0
    guesses: list[int] = field(default_factory=list)


class DraftModel:
    """Drafts of a small model (Leviathan et al., 2023), each with the length that is wanted for it.

    A guess is drawn under the request's own settings, penalties included, by the purpose "draft"
    and the number of tokens before it; the draft carries the very distributions it was drawn from.
    Guesses for greedy texts are certain. What was guessed depends on the text and its seed, on
    nothing else.

    The cache follows the texts: guesses that were refused are taken back, what is new is read
    before the next guess. Past the model's window attention slides, as in generation. When the
    cache is full, the latest comers get no guesses until there is room again; a warning says so,
    once. When the model has got new weights, everything is read anew.
    """

    draws = True

    def __init__(
        self,
        model: GPT,
        *,
        num_ids: int | None = None,
        kv_memory: int | None = None,
        block_size: int = 16,
        max_step_tokens: int = 512,
    ) -> None:
        """Guess ids below `num_ids`, as many as the engine's model may write (None: all the draft
        model has); whether they mean the same is for `check_vocabularies` to say.

        `kv_memory` bytes of keys and values at most; None: half of what the machine has available,
        taken as needed. `block_size` and `max_step_tokens` as in `EngineSettings`. Raises
        `ConfigError` for a model that cannot be batched and for values without meaning.
        """
        vocab = model.config.vocab
        self.num_ids = vocab if num_ids is None else num_ids
        """Guesses are below it; the engine's model must have as many."""
        require(
            1 <= self.num_ids <= vocab,
            f"'num_ids' must be between 1 and the draft model's {vocab}; got {num_ids}",
        )
        for name, value in (("block_size", block_size), ("max_step_tokens", max_step_tokens)):
            require(value >= 1, f"'{name}' must be at least 1; got {value}")
        self.nbytes = sum(weight.nbytes for weight in model.weights().values())
        """Bytes of its weights, for `DraftCosts.for_sizes`."""
        self._block_size = block_size
        self._most = max_step_tokens
        self._window = whole_window(model)
        self._model = model
        self._network = network_for(model)
        self._pool = Pool.for_model(model, block_size)
        self._blocks = Blocks(block_size, blocks_within(kv_memory, self._pool.bytes_per_block))
        self._texts: dict[Sequence, _Followed] = {}
        self._warned = False

    def propose(self, wanted: "Mapping[Sequence, int]") -> "dict[Sequence, Draft]":
        """Return drafts of the wanted lengths, for the texts that there is room for.

        Raises `ConfigError` for a text with an id that the draft model does not have.
        """
        if self._network.stale():
            for text in list(self._texts):
                self.forget(text)
            self._network = network_for(self._model)
        lengths = {text: count for text, count in wanted.items() if count > 0}
        for text in lengths:
            if text in self._texts:
                self._take_back(text)
        texts = self._with_room(lengths)
        self._catch_up(texts)
        return self._draft({text: lengths[text] for text in texts})

    def forget(self, sequence: "Sequence") -> None:
        followed = self._texts.pop(sequence, None)
        if followed is not None:
            self._blocks.free(followed.table)

    def _take_back(self, text: "Sequence") -> None:
        """Forget the guesses that did not become tokens of the text.

        The text's last token is always read anew, since the logits after it are wanted.
        """
        followed = self._texts[text]
        followed.true += _agreeing(followed.guesses, text.token_ids[followed.true :])
        followed.true = min(followed.true, len(text.token_ids) - 1)
        followed.guesses = []
        self._blocks.truncate(followed.table, followed.true)
        self._slide(followed)

    def _slide(self, followed: _Followed) -> None:
        """Give back what the text's next token does not see any more."""
        if self._window is not None:
            self._blocks.drop_front(followed.table, max(followed.true + 1 - self._window, 0))

    def _with_room(self, lengths: "Mapping[Sequence, int]") -> "list[Sequence]":
        """Return the texts whose tokens and guesses fit into the cache, the oldest first.

        For an older text younger ones are put out. Who is new comes in only if every text that is
        here already can have a block more, lest it be put out in the next step.
        """
        chosen: list[Sequence] = []
        free = self._blocks.available
        for text in sorted(lengths, key=_age):
            followed = self._texts.get(text)
            held = len(followed.table.blocks) if followed else 0
            need = max(self._most_blocks(len(text.token_ids), lengths[text]) - held, 0)
            spare = len(self._texts) if followed is None else 0
            while followed and need > free and (last := max(self._texts, key=_age)) is not text:
                free += len(self._texts[last].table.blocks)
                self.forget(last)
            if need + spare <= free:
                free -= need
                self._texts.setdefault(text, _Followed())
                chosen.append(text)
        if len(chosen) < len(lengths) and not self._warned:
            self._warned = True
            warnings.warn(
                f"the draft model's cache is full: {len(lengths) - len(chosen)} of {len(lengths)} "
                "texts get no guesses for now; give the draft model more kv_memory",
                MLXGPTWarning,
                stacklevel=3,
            )
        return chosen

    def _most_blocks(self, tokens: int, count: int) -> int:
        """Return how many blocks a text of `tokens` tokens and `count` guesses takes at most."""
        placed = tokens + count - 1  # the last guess is not read
        if self._window is not None and placed > self._window + self._most + count:
            return -(-(self._window + self._most + count) // self._block_size) + 1
        return -(-placed // self._block_size)

    def _catch_up(self, texts: "Iterable[Sequence]") -> None:
        """Read the texts until what is left of them, at least a token each, fits into one step."""
        while True:
            left = {text: len(text.token_ids) - self._texts[text].table.length for text in texts}
            if sum(left.values()) <= self._most or max(left.values()) <= 1:
                return
            room = self._most
            part: dict[Sequence, list[int]] = {}
            for text, count in left.items():
                now = min(count - 1, room)
                if now > 0:
                    begin = self._texts[text].table.length
                    part[text] = text.token_ids[begin : begin + now]
                    room -= now
            mx.eval(self._read(part))
            for text in part:
                followed = self._texts[text]
                followed.true = followed.table.length
                self._slide(followed)

    def _draft(self, lengths: "Mapping[Sequence, int]") -> "dict[Sequence, Draft]":
        """Guess token after token, all texts together; their last tokens are still to be read.

        Nothing is waited for between two guesses, save where choosing one needs the one before.
        """
        wait = not all(can_look_ahead(text.params) for text in lengths)
        greedy = all(text.params.temperature == 0 for text in lengths)
        written = {text: text.token_ids[text.prompt_length :] for text in lengths}
        prompts = {text: text.token_ids[: text.prompt_length] for text in lengths}
        steps: list[tuple[list[Sequence], mx.array]] = []  # the texts, and their guesses (R,)
        distributions: list[mx.array] = []
        for i in range(max(lengths.values(), default=0)):
            live = [text for text, length in lengths.items() if length > i]
            if i == 0:
                logits = self._read(
                    {text: text.token_ids[self._texts[text].table.length :] for text in live}
                )
            else:
                logits = self._go_on(live, *steps[-1])
            contexts = [Context(t.params, prompts[t], written[t]) for t in live]
            uniforms = [uniform(t.params, "draft", t.generated + i) for t in live]
            if greedy:
                ids = choose(logits, contexts, uniforms)
            else:
                distributions.append(next_logprobs(logits, contexts))
                ids = draw(distributions[-1], uniforms)
            mx.async_eval(ids)  # while the next one is prepared
            steps.append((live, ids))
            if wait:
                for text, token in zip(live, np.array(ids).tolist(), strict=True):
                    written[text] = [*written[text], token]  # a context keeps the one it was given
        guesses: dict[Sequence, list[int]] = {text: [] for text in lengths}
        places: dict[Sequence, list[int]] = {text: [] for text in lengths}
        count = 0
        for live, ids in steps:
            for text, token in zip(live, np.array(ids).tolist(), strict=True):
                guesses[text].append(token)
                places[text].append(count)
                count += 1
        every = None if greedy or not distributions else mx.concatenate(distributions)
        drafts = {}
        for text in lengths:
            followed = self._texts[text]
            followed.true, followed.guesses = len(text.token_ids), guesses[text][:-1]
            drawn = every is not None and text.params.temperature > 0
            logprobs = every[mx.array(places[text])] if drawn and every is not None else None
            drafts[text] = Draft(guesses[text], logprobs)
        return drafts

    def _go_on(self, live: "list[Sequence]", before: "list[Sequence]", ids: mx.array) -> mx.array:
        """Feed the last guesses, `ids` (R,) of the texts `before`, where another one is due."""
        if len(live) < len(before):
            ids = ids[mx.array([before.index(text) for text in live])]
        return self._feed(dict.fromkeys(live, 1), ids.astype(mx.int32))

    def _read(self, part: "Mapping[Sequence, list[int]]") -> mx.array:
        """Feed more tokens of some texts; return the logits after each one's last, (R, V)."""
        for token_ids in part.values():
            require(
                max(token_ids) < self.num_ids,
                f"a text has token id {max(token_ids)}, but the draft model has ids 0 to "
                f"{self.num_ids - 1}; use one that was trained with the same tokenizer",
            )
        input_ids = mx.array([i for ids in part.values() for i in ids], dtype=mx.int32)
        return self._feed({text: len(ids) for text, ids in part.items()}, input_ids)

    def _feed(self, counts: "Mapping[Sequence, int]", input_ids: mx.array) -> mx.array:
        """Feed so many tokens of each text; return the logits after each one's last, (R, V)."""
        rows, copies = [], []
        for text, count in counts.items():
            table = self._texts[text].table
            copies += self._blocks.append(table, count, text.longest)
            rows.append(StepRow(table, count))
        self._pool.grow(self._blocks.segments)
        self._pool.copy(copies)
        attention = step_attention(self._pool, self._block_size, rows)
        last = mx.array([end - 1 for end in accumulate(counts.values())], dtype=mx.int32)
        return self._network(input_ids, attention, last)[:, : self.num_ids]


def _age(text: "Sequence") -> tuple[int, int]:
    return text.request_id, text.choice


def _agreeing(guesses: list[int], token_ids: list[int]) -> int:
    """Return how many of the guesses the text has gone on with."""
    count = 0
    while count < min(len(guesses), len(token_ids)) and guesses[count] == token_ids[count]:
        count += 1
    return count
