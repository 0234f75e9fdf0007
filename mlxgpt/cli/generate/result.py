"""A request and the texts written for it -> the lines of results.

A result is the object that asked, its own entries included, with these beside them: "line" (where
it stood, from 1), "choice" (which of its `n` texts this is, from 0), "text", "finish_reason",
"prompt_tokens", "generated_tokens", "seed" (that of this text), "logprobs" if they were asked for,
and "request", by which a run that goes on knows its own. One that could not be served has "error"
in the place of a text.
"""

import math
from collections.abc import Sequence
from typing import Any

from mlxgpt.cli.prompts_file import Request
from mlxgpt.infer.engine.completion import Completion
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.text import Tokenizer

_DIGITS = 5
"""Decimals of a log-probability: further ones depend on what else was computed beside it."""


def result_lines(
    request: Request,
    key: str,
    params: SamplingParams,
    texts: Sequence[Completion],
    tokenizer: Tokenizer,
) -> list[dict[str, Any]]:
    """Return the results of a request, one for each of its texts."""
    lines = []
    for text in texts:
        line = {
            **_beginning(request, text.choice),
            "text": text.text,
            "finish_reason": text.finish_reason,
            "prompt_tokens": text.prompt_tokens,
            "generated_tokens": len(text.token_ids),
            "seed": params.choice(text.choice).seed,
        }
        if params.logprobs is not None:
            line["logprobs"] = _logprobs(text, tokenizer)
        lines.append(line | {"request": key})
    return lines


def failure(request: Request, key: str, prompt_tokens: int, error: str) -> dict[str, Any]:
    """Return the result of a request that cannot be served."""
    counts = {"prompt_tokens": prompt_tokens}
    return {**_beginning(request, 0), "error": error, **counts, "request": key}


def _beginning(request: Request, choice: int) -> dict[str, Any]:
    return {"line": request.line, **request.given, "choice": choice}


def _logprobs(text: Completion, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return for each token what the model made of it, and of the likeliest in its place."""

    def entry(token_id: int, logprob: float) -> dict[str, Any]:
        token = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
        value = round(logprob, _DIGITS) if math.isfinite(logprob) else None
        return {"id": token_id, "token": token, "logprob": value}

    return [
        {**entry(token_id, own.logprob), "top": [entry(*each) for each in own.top]}
        for token_id, own in zip(text.token_ids, text.logprobs or [], strict=True)
    ]
