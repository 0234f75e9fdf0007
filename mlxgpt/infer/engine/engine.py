"""Continuous batching: requests join and leave at any step, each as if it were alone.

A step is one forward pass over whatever is due: the next token of some texts, a piece of the prompt
of others, guesses to be checked. What a request gets depends on its prompt, its parameters and the
model; not on its neighbours, on the cache, or on having been preempted.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.errors import ConfigError
from mlxgpt.infer.engine.completion import Completion, Output, TextDecoder
from mlxgpt.infer.engine.followed import Followed
from mlxgpt.infer.engine.memory import blocks_within, whole_window
from mlxgpt.infer.engine.network import network_for
from mlxgpt.infer.engine.scheduler import Row, Scheduler
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.engine.statistics import Statistics
from mlxgpt.infer.engine.writing import Writing
from mlxgpt.infer.paged import Blocks, Copy, Pool, PrefixIndex, StepRow, step_attention
from mlxgpt.infer.sampling import PendingLogprobs, SamplingParams, TokenLogprobs
from mlxgpt.infer.speculative import Draft, DraftLength, Guessed, Proposer, StepTimes, verify
from mlxgpt.model import GPT

_NO_GUESSES = Draft([], None)


class Engine:
    """Generates for many requests at once, over one paged cache.

    ```
    engine = Engine(model, stop_ids=[2], decoder=tokenizer.stream_decoder)
    for completion in engine.generate([ids, other_ids], SamplingParams(max_tokens=50)):
        print(completion.text)
    ```

    Or `add` requests at any time, and call `step` until `active` is false.
    """

    def __init__(
        self,
        model: GPT,
        *,
        stop_ids: Collection[int] = (),
        num_ids: int | None = None,
        decoder: Callable[[], TextDecoder] | None = None,
        proposer: Proposer | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        """`stop_ids` end every text; ids from `num_ids` on (a vocabulary padded beyond its tokenizer)
        are never written. `decoder` makes the text of outputs, and is needed for stop strings.
        `proposer` guesses tokens ahead. Raises `ConfigError` for a model that cannot be batched.
        """
        self.settings = settings or EngineSettings()
        self._statistics = Statistics()
        self._model = model
        self._stop_ids = frozenset(stop_ids)
        self._num_ids = model.config.vocab if num_ids is None else num_ids
        require(
            1 <= self._num_ids <= model.config.vocab,
            f"'num_ids' must be between 1 and the model's {model.config.vocab}; got {num_ids}",
        )
        self._decoder = decoder
        self._proposer = proposer
        self._network = network_for(model)
        size = self.settings.block_size
        self._pool = Pool.for_model(model, size)
        capacity = blocks_within(self.settings.kv_memory, self._pool.bytes_per_block)
        self._blocks = Blocks(size, capacity)
        self._prefixes = PrefixIndex(self._blocks) if self.settings.prefix_sharing else None
        self._scheduler = Scheduler(
            self._blocks,
            self._prefixes,
            max_num_seqs=self.settings.max_num_seqs,
            max_step_tokens=self.settings.max_step_tokens,
            window=whole_window(model),
        )
        self._times = StepTimes()
        self._requests = 0
        self._texts: dict[Text, Followed] = {}
        self._choices: dict[Text, list[Text]] = {}
        self._ready: list[Output] = []

    @property
    def active(self) -> bool:
        """Whether any text is not finished, or any output has not been handed out."""
        return bool(self._texts or self._ready)

    @property
    def statistics(self) -> Statistics:
        """What was done so far, and what the blocks hold now."""
        done, blocks = self._statistics, self._blocks
        done.preemptions = self._scheduler.preemptions
        done.shared_tokens = self._scheduler.shared_tokens
        done.blocks_used = blocks.capacity - blocks.available - blocks.kept_alone
        done.blocks_kept = blocks.kept_alone
        held = {b for text in self._scheduler.running for b in text.table.blocks}
        done.blocks_shared = sum(blocks.in_tables(block) > 1 for block in held)
        return done

    def add(self, prompt_ids: Sequence[int], params: SamplingParams) -> int:
        """Queue a request; return its id. Raises `ConfigError` for one that can never be served."""
        prompt = [int(i) for i in prompt_ids]
        self._check(prompt, params)
        request = self._requests
        texts = [
            Text(request, i, len(prompt), list(prompt), params.choice(i)) for i in range(params.n)
        ]
        if params.max_tokens == 0:
            none = [] if params.logprobs is not None else None
            self._ready += [Output(request, t.choice, [], "", none, "length") for t in texts]
        else:
            self._scheduler.add(texts[0])
            self._texts |= {text: self._follow(text) for text in texts}
            self._choices[texts[0]] = texts[1:]
        self._requests += 1
        self._statistics.requests += 1
        self._statistics.prompt_tokens += len(prompt)
        return request

    def abort(self, request_id: int) -> None:
        """End a request; its last outputs say "abort". Does nothing if it has ended already."""
        for text in [t for t in self._texts if t.request_id == request_id]:
            none = [] if text.params.logprobs is not None else None
            self._ready.append(Output(request_id, text.choice, [], "", none, "abort"))
            self._leave(text)

    def step(self) -> list[Output]:
        """Compute one step; return what is new. Empty lists may come while prompts are taken in."""
        outputs, self._ready = self._ready, []
        if not self._texts:
            return outputs
        began = time.perf_counter()
        self._notice_new_weights()
        drafts = self._propose()
        proposed = time.perf_counter()
        rows, copies = self._scheduler.schedule({t: d.token_ids for t, d in drafts.items()})
        assert rows, "texts are waiting, and none of them can go on"
        try:
            logits = self._compute(rows, copies)
            outputs += self._take(rows, drafts, logits)
        except BaseException:
            for row in rows:  # what they have in the cache is not known any more
                self._leave(row.sequence)
            raise
        now = time.perf_counter()
        longest = max((len(draft.token_ids) for draft in drafts.values()), default=0)
        self._times.add_drafting(longest, proposed - began)
        self._times.add_step(sum(len(row.token_ids) for row in rows), now - proposed)
        self._statistics.seconds += now - began
        return outputs

    def stream(self, prompt_ids: Sequence[int], params: SamplingParams) -> Iterator[Output]:
        """Add a request and yield what it gives, step by step. Outputs of other requests stay until
        the next `step`. Leaving early ends the request."""
        request = self.add(prompt_ids, params)
        left = params.n
        try:
            while left:
                outputs = self.step()
                self._ready[:0] = [o for o in outputs if o.request_id != request]
                for output in outputs:
                    if output.request_id == request:
                        left -= output.finish_reason is not None
                        yield output
        finally:
            self.abort(request)
            self._ready = [o for o in self._ready if o.request_id != request]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams | Sequence[SamplingParams],
    ) -> list[Completion]:
        """Generate for all prompts; return their completions in order, `n` for each.

        `params` is one for all, or one for each prompt.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        require(
            len(each) == len(prompts),
            f"{len(prompts)} prompts, but {len(each)} sampling parameters",
        )
        began = time.perf_counter()
        done: dict[tuple[int, int], Completion] = {}
        try:
            for prompt, chosen in zip(prompts, each, strict=True):
                request = self.add(prompt, chosen)
                for choice in range(chosen.n):
                    done[request, choice] = Completion(request, choice, len(prompt))
            while any(c.finish_reason is None for c in done.values()):
                outputs = self.step()
                since = time.perf_counter() - began
                self._ready[:0] = [o for o in outputs if (o.request_id, o.choice) not in done]
                for output in outputs:
                    if (output.request_id, output.choice) in done:
                        done[output.request_id, output.choice].take(output, since)
        except BaseException:
            self._forget({request for request, _ in done})
            raise
        return list(done.values())

    def _forget(self, requests: Collection[int]) -> None:
        """End these requests without a word."""
        for request in requests:
            self.abort(request)
        self._ready = [o for o in self._ready if o.request_id not in requests]

    def _check(self, prompt: list[int], params: SamplingParams) -> None:
        require(len(prompt) > 0, "the prompt is empty; give at least one token")
        for place, token in enumerate(prompt):
            if not 0 <= token < self._num_ids:
                raise ConfigError(
                    f"prompt token {place} is id {token}; the model has ids 0 to {self._num_ids - 1}"
                )
        require(
            not params.stop or self._decoder is not None,
            "stop strings need a decoder: give Engine one, decoder=tokenizer.stream_decoder",
        )

    def _leave(self, text: Text) -> None:
        """Take a text, and the choices that wait for its prompt, out of everything."""
        for each in (text, *self._choices.pop(text, [])):
            self._scheduler.abort(each)
            self._texts.pop(each, None)
            if self._proposer is not None:
                self._proposer.forget(each)

    def _follow(self, text: Text) -> Followed:
        decoder = None if self._decoder is None else self._decoder()
        settings = self.settings
        return Followed(
            text,
            Writing(text.params, self._stop_ids, decoder),
            DraftLength(settings.num_draft_tokens, adapt=settings.adapt_draft),
        )

    def _notice_new_weights(self) -> None:
        """Forget keys and values that were computed with other weights.

        Texts that are being written keep theirs: they were begun by another model.
        """
        if self._network.stale():
            self._network = network_for(self._model)
            if self._prefixes is not None:
                self._prefixes.clear()

    def _propose(self) -> Mapping[Text, Draft]:
        if self._proposer is None:
            return {}
        decoding = self._scheduler.decoding()
        costs = self._times.costs(len(decoding))
        wanted = {}
        for text in decoding:
            most = text.params.max_tokens - text.generated - 1
            # What is drawn with drawn guesses depends on their number, so that may not depend on
            # how fast things went.
            fixed = self._proposer.draws and text.params.temperature > 0
            count = min(most, self._texts[text].draft_length.choose(None if fixed else costs))
            if count > 0:
                wanted[text] = count
        return self._proposer.propose(wanted) if wanted else {}

    def _compute(self, rows: Sequence[Row], copies: Sequence[Copy]) -> mx.array:
        """Run the model over the rows; return the logits (M, V) that are wanted, row after row."""
        self._pool.grow(self._blocks.segments)
        self._pool.copy(copies)
        ids, wanted = [], []
        for row in rows:
            ids += row.token_ids
            if row.wants_logits:
                wanted += range(len(ids) - 1 - row.drafted, len(ids))
        attention = step_attention(
            self._pool,
            self._blocks.block_size,
            [StepRow(row.sequence.table, len(row.token_ids)) for row in rows],
        )
        logits = self._network(
            mx.array(ids, dtype=mx.int32), attention, mx.array(wanted, dtype=mx.int32)
        )
        if not wanted:
            mx.eval(self._pool.arrays)
        self._statistics.steps += 1
        self._statistics.computed_tokens += len(ids)
        return logits[:, : self._num_ids]

    def _take(
        self, rows: Sequence[Row], drafts: Mapping[Text, Draft], logits: mx.array
    ) -> list[Output]:
        """Choose the next tokens of all rows that want some, and hand them on."""
        guessed: list[Guessed] = []
        texts: list[tuple[Row, Text, int]] = []  # and where its logits begin
        places: list[int] = []
        begin = 0
        for row in rows:
            if not row.wants_logits:
                self._scheduler.commit(row, [], finished=False)
                continue
            text = row.sequence
            draft = drafts.get(text, _NO_GUESSES).first(row.drafted)
            for each in (text, *self._choices.get(text, [])):
                texts.append((row, each, len(places)))
                places += range(begin, begin + row.drafted + 1)
                guessed.append(
                    Guessed(
                        each.params,
                        each.token_ids[: each.prompt_length],
                        each.token_ids[each.prompt_length :],
                        draft,
                    )
                )
            begin += row.drafted + 1
        if len(places) > begin:  # several texts of one prompt
            logits = logits[mx.array(places)]
        kept = verify(guessed, logits)
        logprobs = self._logprobs(texts, kept, logits)
        # The further texts of a request come after its first, and fork from what it has; so the
        # first is committed last.
        outputs = [
            self._commit(row, each, tokens, after)
            for (row, each, _), tokens, after in reversed(
                list(zip(texts, kept, logprobs, strict=True))
            )
        ]
        return outputs[::-1]

    def _commit(
        self, row: Row, text: Text, tokens: list[int], logprobs: list[TokenLogprobs] | None
    ) -> Output:
        followed = self._texts[text]
        count, shown = followed.writing.take(tokens)
        reason = followed.writing.finish_reason
        accepted = min(len(tokens) - 1, count)
        done = self._statistics
        done.generated_tokens += count
        done.decoding_rows += 1
        if text is row.sequence:
            self._choices.pop(text, None)
            self._scheduler.commit(row, tokens[:count], reason is not None)
            followed.draft_length.update(row.drafted, accepted)
            done.drafted_tokens += row.drafted
            done.accepted_tokens += accepted
        else:
            self._scheduler.fork(row, text, tokens[:count], reason is not None)
        if reason is not None:
            text.finish_reason = reason
            self._leave(text)
        return Output(
            text.request_id,
            text.choice,
            tokens[:count],
            shown,
            None if logprobs is None else logprobs[:count],
            reason,
        )

    def _logprobs(
        self,
        texts: Sequence[tuple[Row, Text, int]],
        kept: Sequence[list[int]],
        logits: mx.array,
    ) -> list[list[TokenLogprobs] | None]:
        """Return the log-probabilities of the tokens of each text that asked for them."""
        places, chosen, alternatives = [], [], []
        for (_, text, begin), tokens in zip(texts, kept, strict=True):
            if text.params.logprobs is not None:
                places += range(begin, begin + len(tokens))
                chosen += tokens
                alternatives += [text.params.logprobs] * len(tokens)
        if not places:
            return [None] * len(texts)
        pending = PendingLogprobs(logits[mx.array(places)], mx.array(chosen), alternatives)
        values = iter(pending.read())
        return [
            None if text.params.logprobs is None else [v for _, v in zip(tokens, values) if v]
            for (_, text, _), tokens in zip(texts, kept, strict=True)
        ]
