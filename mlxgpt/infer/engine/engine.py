"""Continuous batching: requests join and leave at any step, each as if it were alone.

A step is one forward pass over whatever is due: the next token of some texts, a piece of the prompt
of others, guesses to be checked. What a request gets depends on its prompt, its parameters and the
model; not on its neighbours, on the cache, or on having been preempted. With a draft model and a
temperature that holds for the distribution: which tokens are drawn depends on how many are guessed.
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence

from mlxgpt.config import require
from mlxgpt.infer.engine.chosen import Chosen, choose_tokens
from mlxgpt.infer.engine.completion import Completion, Output, TextDecoder
from mlxgpt.infer.engine.guessing import Guessing
from mlxgpt.infer.engine.model_runner import ModelRunner
from mlxgpt.infer.engine.scheduler import Row, Scheduler
from mlxgpt.infer.engine.sequence import Sequence as Text
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.engine.statistics import Statistics
from mlxgpt.infer.engine.writing import Writing
from mlxgpt.infer.paged import Blocks, Pool, PrefixIndex
from mlxgpt.infer.paged.memory import blocks_within, whole_window
from mlxgpt.infer.prompt_check import checked_prompt, written_ids
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.infer.speculative import Proposer
from mlxgpt.model import GPT


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
        """`stop_ids` end every text; ids from `num_ids` on, with which a vocabulary may be padded
        beyond its tokenizer, are never written. `decoder` makes the text of outputs, and is needed
        for stop strings. `proposer` guesses tokens ahead. Raises `ConfigError` for a model that
        cannot be batched.
        """
        self.settings = settings or EngineSettings()
        self._statistics = Statistics()
        self._stop_ids = frozenset(stop_ids)
        self._num_ids = written_ids(model.config.vocab, num_ids)
        self._decoder = decoder
        pool = Pool.for_model(model, self.settings.block_size)
        capacity = blocks_within(self.settings.kv_memory, pool.bytes_per_block)
        self._blocks = Blocks(self.settings.block_size, capacity)
        self._runner = ModelRunner(model, pool, self._blocks)
        self._scheduler = Scheduler(
            self._blocks,
            PrefixIndex(self._blocks) if self.settings.prefix_sharing else None,
            max_num_seqs=self.settings.max_num_seqs,
            max_step_tokens=self.settings.max_step_tokens,
            window=whole_window(model),
        )
        self._guessing = Guessing(proposer, model, self._num_ids, self.settings)
        self._requests = 0
        self._texts: dict[Text, Writing] = {}
        self._choices: dict[Text, list[Text]] = {}
        self._ready: list[Output] = []

    @property
    def active(self) -> bool:
        """Whether any text is not finished, or any output has not been handed out."""
        return bool(self._texts or self._ready)

    @property
    def running(self) -> Sequence[Text]:
        """The texts that hold blocks, in order of arrival; to be looked at only."""
        return self._scheduler.running

    @property
    def statistics(self) -> Statistics:
        """What was done so far, and what the blocks hold now."""
        done, blocks = self._statistics, self._blocks
        done.preemptions = self._scheduler.preemptions
        done.steps, done.computed_tokens = self._runner.steps, self._runner.computed_tokens
        done.drafted_tokens = self._guessing.drafted
        done.accepted_tokens = self._guessing.accepted
        done.shared_tokens = self._scheduler.shared_tokens
        done.blocks_used = self._blocks_used
        done.blocks_kept = blocks.kept_alone
        held = {b for text in self._scheduler.running for b in text.table.blocks}
        done.blocks_shared = sum(blocks.in_tables(block) > 1 for block in held)
        return done

    @property
    def _blocks_used(self) -> int:
        blocks = self._blocks
        return blocks.capacity - blocks.available - blocks.kept_alone

    def add(
        self,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        decoder: Callable[[], TextDecoder] | None = None,
    ) -> int:
        """Queue a request; return its id. `decoder` is one for this request alone. If the model's
        weights were replaced since the last request, nothing computed before is used for this one.
        Raises `ConfigError` for a request that can never be served."""
        decoder = decoder or self._decoder
        prompt = checked_prompt(prompt_ids, self._num_ids)
        if self._runner.renew():  # texts that are being written keep what they have
            self._scheduler.forget_prefixes()
        unknown = [i for i in params.logit_bias if i >= self._num_ids]
        require(
            not unknown,
            f"'logit_bias' has id {unknown[:1]}; the model writes ids 0 to {self._num_ids - 1}",
        )
        require(
            not params.stop or decoder is not None,
            "stop strings need a decoder: give Engine one, decoder=tokenizer.stream_decoder",
        )
        request = self._requests
        texts = [
            Text(request, i, len(prompt), list(prompt), params.choice(i)) for i in range(params.n)
        ]
        if params.max_tokens == 0:
            none = [] if params.logprobs is not None else None
            self._ready += [Output(request, t.choice, [], "", none, "length") for t in texts]
        else:
            self._scheduler.add(texts[0])
            for text in texts:
                pieces = None if decoder is None else decoder()
                self._texts[text] = Writing(text.params, self._stop_ids, pieces)
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
        """Compute one step; return what is new. Empty lists may come while prompts are taken in.

        When a step fails, all running requests end with "abort", since nobody knows what of them is
        in the cache; those that wait go on with the next step.
        """
        outputs, self._ready = self._ready, []
        if not self._texts:
            return outputs
        began = time.perf_counter()
        try:
            drafts = self._guessing.propose(self._scheduler.decoding())
            proposed = time.perf_counter()
            rows, copies = self._scheduler.schedule({t: d.token_ids for t, d in drafts.items()})
            assert rows, "texts are waiting, and none of them can go on"
            for text in self._scheduler.preempted:
                self._guessing.preempted(text)
            most = self._statistics.most_blocks_used
            self._statistics.most_blocks_used = max(most, self._blocks_used)
            logits = self._runner.compute(rows, copies)[:, : self._num_ids]
            chosen = choose_tokens(rows, self._choices, drafts, logits)
            self._take(rows, chosen, outputs)
        except BaseException:
            self._ready = outputs + self._ready
            self._end_running()
            raise
        now = time.perf_counter()
        self._guessing.took(sum(len(row.token_ids) for row in rows), now - proposed)
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
                if not outputs and not self._knows({request}):
                    return  # somebody else has taken its last outputs
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
                requests = {request for request, _ in done}
                require(
                    bool(outputs) or self._knows(requests),
                    "outputs of generate were taken by another step; use one loop for an engine",
                )
                since = time.perf_counter() - began
                self._ready[:0] = [o for o in outputs if (o.request_id, o.choice) not in done]
                for output in outputs:
                    if (output.request_id, output.choice) in done:
                        done[output.request_id, output.choice].take(output, since)
        except BaseException:
            self._forget({request for request, _ in done})
            raise
        return list(done.values())

    def _knows(self, requests: Collection[int]) -> bool:
        """Whether any of these requests is not finished, or has outputs to be handed out."""
        return any(each.request_id in requests for each in (*self._texts, *self._ready))

    def _end_running(self) -> None:
        """End all requests of which a text holds blocks, and forget what was computed before."""
        for request in {text.request_id for text in self._scheduler.running}:
            self.abort(request)
        self._scheduler.forget_prefixes()

    def _forget(self, requests: Collection[int]) -> None:
        """End these requests without a word."""
        for request in requests:
            self.abort(request)
        self._ready = [o for o in self._ready if o.request_id not in requests]

    def _leave(self, text: Text) -> None:
        """Take a text, and the choices that wait for its prompt, out of everything."""
        for each in (text, *self._choices.pop(text, [])):
            self._scheduler.abort(each)
            self._texts.pop(each, None)
            self._guessing.forget(each)

    def _take(self, rows: Sequence[Row], chosen: Sequence[Chosen], outputs: list[Output]) -> None:
        """Give the texts what was chosen for them, and add it to `outputs`."""
        for row in rows:
            if not row.wants_logits:
                self._scheduler.commit(row, [], finished=False)
        begin = len(outputs)
        # The further texts of a request fork from what its first one has, so that one comes last.
        for one in reversed(chosen):
            outputs.insert(begin, self._commit(one))

    def _commit(self, chosen: Chosen) -> Output:
        row, text = chosen.row, chosen.text
        writing = self._texts[text]
        count, shown = writing.take(chosen.token_ids)
        tokens, reason = chosen.token_ids[:count], writing.finish_reason
        logprobs = None if chosen.logprobs is None else chosen.logprobs[:count]
        self._statistics.generated_tokens += count
        self._statistics.decoding_rows += 1
        if text is row.sequence:
            self._choices.pop(text, None)
            self._scheduler.commit(row, tokens, reason is not None)
            # What was guessed past the end of a text was not wrong.
            drafted = row.drafted if reason is None else min(row.drafted, count)
            self._guessing.checked(text, drafted, min(len(chosen.token_ids) - 1, count))
        else:
            self._scheduler.fork(row, text, tokens, reason is not None)
        if reason is not None:
            text.finish_reason = reason
            self._leave(text)
        return Output(text.request_id, text.choice, tokens, shown, logprobs, reason)
