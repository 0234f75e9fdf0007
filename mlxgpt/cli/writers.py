"""What writes texts for the commands: the engine, or the plain loop with the same face.

The engine runs every model of ours but one kind; what it does not run is written by the plain loop,
one text after the other.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mlxgpt.config import require
from mlxgpt.infer import Generated, SamplingParams, generate
from mlxgpt.infer.engine.completion import Output, TextDecoder
from mlxgpt.infer.engine.engine import Engine
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.engine.statistics import Statistics
from mlxgpt.infer.engine.writing import Writing
from mlxgpt.infer.language_model import LanguageModel, language_model
from mlxgpt.infer.sampling import TokenLogprobs
from mlxgpt.infer.speculative import Proposer
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer


class Writer(Protocol):
    """Writes the texts of requests, step by step."""

    @property
    def statistics(self) -> Statistics:
        """What has been done so far."""
        ...

    @property
    def active(self) -> bool:
        """Whether any text is not finished, or any output has not been handed out."""
        ...

    def add(
        self, prompt_ids: Sequence[int], params: SamplingParams, after: int | None = None
    ) -> int:
        """Queue a request; return its id. Its text goes on from that of the id `after`; None: it
        begins. Raises `ConfigError` for one that can never be served."""
        ...

    def step(self) -> list[Output]:
        """Write on; return what is new."""
        ...

    def abort(self, request_id: int) -> None:
        """End a request."""
        ...


def follow(
    writer: Writer, request_id: int, texts: int, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Output]:
    """Yield the outputs of a request, until all its `texts` have ended or it is to be `stopped`.

    It must be the only one of `writer`. Leaving early ends it.
    """
    try:
        while texts and not stopped():
            for output in writer.step():
                assert output.request_id == request_id
                texts -= output.finish_reason is not None
                yield output
    finally:
        writer.abort(request_id)
        while writer.active:
            writer.step()


class EngineWriter:
    """The engine, with a tokenizer to make text of what it writes."""

    def __init__(
        self,
        network: GPT,
        tokenizer: Tokenizer,
        *,
        proposer: Proposer | None = None,
        settings: EngineSettings | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._engine = Engine(
            network,
            num_ids=tokenizer.vocab_size,
            proposer=proposer,
            settings=settings,
        )

    @property
    def statistics(self) -> Statistics:
        return self._engine.statistics

    @property
    def active(self) -> bool:
        return self._engine.active

    def add(
        self, prompt_ids: Sequence[int], params: SamplingParams, after: int | None = None
    ) -> int:
        return self._engine.add(
            prompt_ids, params, decoder=lambda: _decoder(self._tokenizer, after)
        )

    def step(self) -> list[Output]:
        return self._engine.step()

    def abort(self, request_id: int) -> None:
        self._engine.abort(request_id)


@dataclass(eq=False)
class _Text:
    """A text of the plain loop."""

    request_id: int
    choice: int
    tokens: Iterator[Generated]
    writing: Writing
    none: list[TokenLogprobs] | None
    """What stands for the logprobs of no tokens."""


class PlainWriter:
    """The plain loop over a cache, one text after the other."""

    def __init__(self, model: GPT | LanguageModel, tokenizer: Tokenizer) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._texts: deque[_Text] = deque()
        self._ready: list[Output] = []
        self._requests = 0
        self._statistics = Statistics()

    @property
    def statistics(self) -> Statistics:
        return self._statistics

    @property
    def active(self) -> bool:
        return bool(self._texts or self._ready)

    def add(
        self, prompt_ids: Sequence[int], params: SamplingParams, after: int | None = None
    ) -> int:
        longest = language_model(self._model).longest
        require(
            longest is None or len(prompt_ids) <= longest,
            f"the prompt has {len(prompt_ids)} tokens; this model takes {longest} at most",
        )
        request = self._requests
        for i in range(params.n):
            own = params.choice(i)
            decoder = _decoder(self._tokenizer, after)
            tokens = generate(
                self._model,
                prompt_ids,
                replace(own, stop=()),  # which need a decoder, and are looked for here
                num_ids=self._tokenizer.vocab_size,
            )
            none = [] if own.logprobs is not None else None
            self._texts.append(_Text(request, i, tokens, Writing(own, (), decoder), none))
        self._requests += 1
        self._statistics.requests += 1
        self._statistics.prompt_tokens += len(prompt_ids)
        return request

    def step(self) -> list[Output]:
        """Write one token of the text that is next."""
        outputs, self._ready = self._ready, []
        if self._texts:
            began = time.perf_counter()
            outputs.append(self._write(self._texts[0]))
            self._statistics.seconds += time.perf_counter() - began
        return outputs

    def abort(self, request_id: int) -> None:
        for text in [t for t in self._texts if t.request_id == request_id]:
            self._texts.remove(text)
            self._ready.append(Output(request_id, text.choice, [], "", text.none, "abort"))

    def _write(self, text: _Text) -> Output:
        token = next(text.tokens, None)
        if token is None:  # not a single one was asked for
            self._texts.remove(text)
            return Output(text.request_id, text.choice, [], "", text.none, "length")
        _, shown = text.writing.take([token.token_id])
        reason = text.writing.finish_reason
        if reason is None and token.finish_reason is not None:  # the model's own end
            shown += text.writing.finish()
            reason = text.writing.finish_reason or token.finish_reason
        if reason is not None:
            self._texts.remove(text)
        self._statistics.steps += 1
        self._statistics.decoding_rows += 1
        self._statistics.generated_tokens += 1
        logprobs = None if token.logprobs is None else [token.logprobs]
        return Output(text.request_id, text.choice, [token.token_id], shown, logprobs, reason)


def _decoder(tokenizer: Tokenizer, after: int | None) -> TextDecoder:
    decoder = tokenizer.stream_decoder(skip_special=True)
    if after is not None:
        decoder.push(after)
    return decoder
