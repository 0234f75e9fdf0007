"""Prompt ids -> generated ids, one at a time. Knows no tokenizer.

`generate` runs over a cache; `generate_plain` computes the whole text anew for each token. It is
slow and obvious, and every faster way must give its tokens.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.infer.kv_cache import KVCache
from mlxgpt.infer.sampling import SamplingParams, sample
from mlxgpt.model import GPT, CausalAttend

_PREFILL_CHUNK = 512


@dataclass(frozen=True)
class Generated:
    """One generated token; the last one says why it is the last."""

    token_id: int
    finish_reason: Literal["stop", "length"] | None


def generate(
    model: GPT,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    stop_ids: Collection[int] = (),
    num_ids: int | None = None,
) -> Iterator[Generated]:
    """Generate after `prompt_ids` (at least one), at most `params.max_tokens` tokens.

    Past `config.context` tokens attention slides: a token sees the last so many ones. A token of
    `stop_ids` ends the text and is given out with the reason "stop". Ids from `num_ids` on (a
    vocabulary padded beyond its tokenizer) are never drawn. Raises `ConfigError` for an empty
    prompt or an id that the model does not have.
    """
    _check(model, prompt_ids, num_ids)
    if params.max_tokens == 0:
        return
    cache = KVCache(model.config.n_layer, window=model.config.context)

    def next_logits(ids: mx.array) -> mx.array:
        return model.head(model.features(ids, cache)[:, -1])[:, :num_ids]

    prompt = mx.array([[int(i) for i in prompt_ids]], dtype=mx.int32)
    for start in range(0, len(prompt_ids) - 1, _PREFILL_CHUNK):
        chunk = prompt[:, start : min(start + _PREFILL_CHUNK, len(prompt_ids) - 1)]
        mx.eval(model.features(chunk, cache))
    token = sample(next_logits(prompt[:, -1:]), params, 0)
    for i in range(params.max_tokens):
        last = i + 1 == params.max_tokens
        following = token if last else sample(next_logits(token[None]), params, i + 1)
        mx.async_eval(following)  # computes on while the caller looks at this token
        yield (out := _generated(token, last, stop_ids))
        if out.finish_reason:
            return
        token = following


def generate_plain(
    model: GPT,
    prompt_ids: Sequence[int],
    params: SamplingParams,
    *,
    stop_ids: Collection[int] = (),
    num_ids: int | None = None,
) -> Iterator[Generated]:
    """Do what `generate` does, without a cache: the oracle of the tests."""
    _check(model, prompt_ids, num_ids)
    attend = CausalAttend(window=model.config.context)
    ids = [int(i) for i in prompt_ids]
    for i in range(params.max_tokens):
        logits = model(mx.array([ids], dtype=mx.int32), attend)[:, -1, :num_ids]
        out = _generated(sample(logits, params, i), i + 1 == params.max_tokens, stop_ids)
        ids.append(out.token_id)
        yield out
        if out.finish_reason:
            return


def _generated(sampled: mx.array, last: bool, stop_ids: Collection[int]) -> Generated:
    """Wait for the sampled id, (1,), and say whether the text ends with it."""
    token = sampled.item()
    assert isinstance(token, int)
    return Generated(token, "stop" if token in stop_ids else "length" if last else None)


def _check(model: GPT, prompt_ids: Sequence[int], num_ids: int | None) -> None:
    vocab = model.config.vocab if num_ids is None else num_ids
    require(
        1 <= vocab <= model.config.vocab,
        f"'num_ids' must be between 1 and the model's {model.config.vocab}; got {num_ids}",
    )
    require(len(prompt_ids) > 0, "the prompt is empty; give at least one token")
    for place, token in enumerate(prompt_ids):
        if not 0 <= token < vocab:
            require(
                False, f"prompt token {place} is id {token}; the model has ids 0 to {vocab - 1}"
            )
