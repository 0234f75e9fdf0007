"""Prompt ids -> generated ids, one at a time. Knows no tokenizer, and so no stop strings.

`generate` runs over a cache; `generate_plain` computes the whole text anew for each token. It is
slow and obvious, and every faster way must give its tokens.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.infer.language_model import LanguageModel, language_model
from mlxgpt.infer.prompt_check import checked_prompt, written_ids
from mlxgpt.infer.sampling import (
    Context,
    PendingLogprobs,
    SamplingParams,
    TokenLogprobs,
    can_look_ahead,
    choose,
    uniform,
)
from mlxgpt.model import GPT


@dataclass(frozen=True)
class Generated:
    """One generated token; the last one says why it is the last."""

    token_id: int
    finish_reason: Literal["stop", "length"] | None
    logprobs: TokenLogprobs | None = None
    """How likely it was, if `SamplingParams.logprobs` asks for it."""


@dataclass(frozen=True)
class _Upcoming:
    """A token that has been chosen; neither it nor its log-probabilities need be computed yet."""

    token: mx.array
    """(1,)"""
    logprobs: PendingLogprobs

    def start(self) -> "_Upcoming":
        """Let it be computed, without waiting."""
        mx.async_eval(self.token, *self.logprobs.arrays)
        return self

    def read(self, last: bool, stop_ids: Collection[int]) -> Generated:
        """Wait for it, and say whether the text ends with it."""
        token = self.token.item()
        assert isinstance(token, int)
        reason = "stop" if token in stop_ids else "length" if last else None
        return Generated(token, reason, self.logprobs.read()[0])


def generate(
    model: GPT | LanguageModel,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    stop_ids: Collection[int] = (),
    num_ids: int | None = None,
) -> Iterator[Generated]:
    """Generate after `prompt_ids` (at least one), at most `params.max_tokens` tokens.

    Past the context of a `GPT` attention slides: a token sees the last so many ones. With rotary
    positions of type "dynamic" each token that is written is turned by the length of the text at
    its time, as in transformers' cache, so `generate_plain` differs past the original context.

    A network of another library ends the text at its context. A token of `stop_ids`, or of those of
    `params`, ends the text and is given out with the reason "stop". Ids from `num_ids` on (a
    vocabulary padded beyond its tokenizer) are never drawn. Raises `ConfigError` for an empty
    prompt, one that is too long, an id that the model does not have, and for what only `Engine`
    does: several texts, and stop strings.
    """
    runs = language_model(model)
    count = _check(runs, prompt_ids, params, num_ids)
    if count == 0:
        return
    session = runs.session()
    prompt, written = [int(i) for i in prompt_ids], []
    stop_ids = params.stop_ids.union(stop_ids)

    def following(ids: mx.array, index: int) -> _Upcoming:
        logits = session.logits(ids)[:, :num_ids]
        return _upcoming(logits, Context(params, prompt, written), index).start()

    array = mx.array([prompt], dtype=mx.int32)
    size = session.piece or len(prompt)
    *before, last_piece = (array[:, i : i + size] for i in range(0, len(prompt), size))
    for piece in before:
        session.feed(piece)
    ahead = can_look_ahead(params)
    upcoming = following(last_piece, 0)
    for i in range(count):
        this, last = upcoming, i + 1 == count
        if ahead and not last:  # computes on while the caller looks at this token
            upcoming = following(this.token[None], i + 1)
        out = this.read(last, stop_ids)
        written.append(out.token_id)
        yield out
        if out.finish_reason:
            return
        if not ahead:
            upcoming = following(this.token[None], i + 1)


def generate_plain(
    model: GPT | LanguageModel,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    stop_ids: Collection[int] = (),
    num_ids: int | None = None,
) -> Iterator[Generated]:
    """Do what `generate` does, without a cache: the oracle of the tests."""
    runs = language_model(model)
    count = _check(runs, prompt_ids, params, num_ids)
    prompt, written = [int(i) for i in prompt_ids], []
    for i in range(count):
        logits = runs(mx.array([prompt + written], dtype=mx.int32))[:, -1, :num_ids]
        upcoming = _upcoming(logits, Context(params, prompt, written), i)
        out = upcoming.read(i + 1 == count, params.stop_ids.union(stop_ids))
        written.append(out.token_id)
        yield out
        if out.finish_reason:
            return


def _upcoming(logits: mx.array, context: Context, index: int) -> _Upcoming:
    """Choose token number `index` of a text from logits (1, V)."""
    params = context.params
    token = choose(logits, [context], [uniform(params, "sample", index)])
    return _Upcoming(token, PendingLogprobs(logits, token, [params.logprobs]))


def _check(
    model: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, num_ids: int | None
) -> int:
    """Check what was asked for; return how many tokens there may be."""
    require(params.n == 1, f"this writes one text, and 'n' is {params.n}; use Engine for several")
    require(
        not params.stop,
        "stop strings need a tokenizer, and this knows only ids; use Engine, or 'stop_ids'",
    )
    checked_prompt(prompt_ids, written_ids(model.vocab, num_ids))
    if model.longest is None:
        return params.max_tokens
    require(
        len(prompt_ids) <= model.longest,
        f"the prompt has {len(prompt_ids)} tokens; this model takes {model.longest} at most",
    )
    # The last token that is written is not fed any more.
    return min(params.max_tokens, model.longest + 1 - len(prompt_ids))
