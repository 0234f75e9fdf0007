"""Prompt ids -> generated ids, one at a time. Knows no tokenizer.

`generate` runs over a cache; `generate_plain` computes the whole text anew for each token. It is
slow and obvious, and every faster way must give its tokens.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.infer.language_model import LanguageModel, language_model
from mlxgpt.infer.sampling import SamplingParams, sample
from mlxgpt.model import GPT


@dataclass(frozen=True)
class Generated:
    """One generated token; the last one says why it is the last."""

    token_id: int
    finish_reason: Literal["stop", "length"] | None


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

    A network of another library ends the text at its context. A token of `stop_ids` ends the text
    and is given out with the reason "stop". Ids from `num_ids` on (a vocabulary padded beyond its
    tokenizer) are never drawn. Raises `ConfigError` for an empty prompt, one that is too long, or
    an id that the model does not have.
    """
    runs = language_model(model)
    count = _check(runs, prompt_ids, params, num_ids)
    if count == 0:
        return
    session = runs.session()

    def next_logits(ids: mx.array) -> mx.array:
        return session.logits(ids)[:, :num_ids]

    prompt = mx.array([[int(i) for i in prompt_ids]], dtype=mx.int32)
    size = session.piece or len(prompt_ids)
    *before, last_piece = (prompt[:, i : i + size] for i in range(0, len(prompt_ids), size))
    for piece in before:
        session.feed(piece)
    token = sample(next_logits(last_piece), params, 0)
    for i in range(count):
        last = i + 1 == count
        following = token if last else sample(next_logits(token[None]), params, i + 1)
        mx.async_eval(following)  # computes on while the caller looks at this token
        yield (out := _generated(token, last, stop_ids))
        if out.finish_reason:
            return
        token = following


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
    ids = [int(i) for i in prompt_ids]
    for i in range(count):
        logits = runs(mx.array([ids], dtype=mx.int32))[:, -1, :num_ids]
        out = _generated(sample(logits, params, i), i + 1 == count, stop_ids)
        ids.append(out.token_id)
        yield out
        if out.finish_reason:
            return


def _generated(sampled: mx.array, last: bool, stop_ids: Collection[int]) -> Generated:
    """Wait for the sampled id, (1,), and say whether the text ends with it."""
    token = sampled.item()
    assert isinstance(token, int)
    return Generated(token, "stop" if token in stop_ids else "length" if last else None)


def _check(
    model: LanguageModel, prompt_ids: Sequence[int], params: SamplingParams, num_ids: int | None
) -> int:
    """Check what was asked for; return how many tokens there may be."""
    vocab = model.vocab if num_ids is None else num_ids
    require(
        1 <= vocab <= model.vocab,
        f"'num_ids' must be between 1 and the model's {model.vocab}; got {num_ids}",
    )
    require(len(prompt_ids) > 0, "the prompt is empty; give at least one token")
    for place, token in enumerate(prompt_ids):
        if not 0 <= token < vocab:
            require(
                False, f"prompt token {place} is id {token}; the model has ids 0 to {vocab - 1}"
            )
    if model.longest is None:
        return params.max_tokens
    require(
        len(prompt_ids) <= model.longest,
        f"the prompt has {len(prompt_ids)} tokens; this model takes {model.longest} at most",
    )
    # The last token that is written is not fed any more.
    return min(params.max_tokens, model.longest + 1 - len(prompt_ids))
