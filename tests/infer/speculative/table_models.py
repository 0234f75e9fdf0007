"""Models over five tokens that are tables: the logits after each text of a few tokens."""

from collections.abc import Callable, Sequence
from itertools import product

import mlx.core as mx
import numpy as np

from mlxgpt.infer.sampling import Context, SamplingParams, draw, next_logprobs, uniform
from mlxgpt.infer.speculative import Draft, Guessed

IDS = 5
DEPTH = 3
PROMPT = [0]


class TableModel:
    """Random logits (5,) after each text, of which only the first `DEPTH` tokens count."""

    def __init__(self, seed: int, spread: float = 1.2, like: "TableModel | None" = None) -> None:
        rng = np.random.Generator(np.random.Philox(key=seed))
        texts = [text for size in range(DEPTH + 1) for text in product(range(IDS), repeat=size)]
        self.places = {text: i for i, text in enumerate(texts)}
        self.table = spread * rng.standard_normal((len(texts), IDS)).astype(np.float32)
        if like is not None:
            self.table += like.table

    def logits(self, texts: Sequence[Sequence[int]]) -> mx.array:
        """Return the logits after each text, (R, 5)."""
        return mx.array(self.table[[self.places[tuple(text[:DEPTH])] for text in texts]])


def filtered(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Return the distribution of the definition, (R, 5) float64: temperature, top-k, top-p."""
    logits = logits.astype(np.float64)
    if params.temperature == 0:
        return np.eye(IDS)[logits.argmax(-1)]
    p = np.exp((logits - logits.max(-1, keepdims=True)) / params.temperature)
    order = np.argsort(-p, axis=-1)
    rank = np.argsort(order, axis=-1)
    if params.top_k is not None:
        p = np.where(rank < params.top_k, p, 0)
    p /= p.sum(-1, keepdims=True)
    if params.top_p is not None:
        down = np.take_along_axis(p, order, -1)
        before = np.take_along_axis(down.cumsum(-1) - down, rank, -1)
        p = np.where(before < params.top_p, p, 0)
    return p / p.sum(-1, keepdims=True)


def text_distribution(model: TableModel, params: SamplingParams) -> np.ndarray:
    """Return the probability of each text of three tokens, (5, 5, 5), by going through all."""
    p = filtered(model.table, params)

    def after(*text: int) -> np.ndarray:
        return p[model.places[text]]

    return np.array(
        [
            [after()[a] * after(a)[b] * after(a, b) for b in range(IDS)]
            for a in range(IDS)
        ]
    )  # fmt: skip


Propose = Callable[
    [TableModel, Sequence[SamplingParams], Sequence[Sequence[int]], int], list[Draft]
]


def drafts(
    model: TableModel,
    params: Sequence[SamplingParams],
    texts: Sequence[Sequence[int]],
    count: int,
) -> list[Draft]:
    """Let `model` draw `count` guesses after each text, from its filtered distribution."""
    written = [list(text) for text in texts]
    logprobs = []
    for _ in range(count):
        contexts = [Context(p, PROMPT, text) for p, text in zip(params, written, strict=True)]
        q = next_logprobs(model.logits(written), contexts)
        at = [uniform(p, "draft", len(text)) for p, text in zip(params, written, strict=True)]
        for text, token in zip(written, draw(q, at).tolist(), strict=True):
            text.append(token)
        logprobs.append(q)
    every = mx.stack(logprobs, axis=1)  # (R, k, 5)
    return [Draft(new[len(new) - count :], every[i]) for i, new in enumerate(written)]


def guessed(
    target: TableModel, params: SamplingParams, text: Sequence[int], draft: Draft
) -> tuple[Guessed, list[list[int]]]:
    """Return the row to verify, and the texts after which its logits stand."""
    places = [[*text, *draft.token_ids[:i]] for i in range(len(draft.token_ids) + 1)]
    return Guessed(params, PROMPT, list(text), draft), places


def speculate(
    verify: Callable[[list[Guessed], mx.array], list[list[int]]],
    propose: Propose,
    target: TableModel,
    draft: TableModel,
    params: Sequence[SamplingParams],
    length: int,
    count: int,
) -> tuple[np.ndarray, int, int]:
    """Write a text for each of `params`, all of them together, with drafts of `count` tokens.

    Return the first `length` tokens of each, (R, length), and how many guesses were made and kept.
    """
    texts: list[list[int]] = [[] for _ in params]
    made = kept = 0
    while live := [i for i, text in enumerate(texts) if len(text) < length]:
        each = propose(draft, [params[i] for i in live], [texts[i] for i in live], count)
        rows, places = [], []
        for i, guesses in zip(live, each, strict=True):
            row, after = guessed(target, params[i], texts[i], guesses)
            rows.append(row)
            places += after
        for i, tokens in zip(live, verify(rows, target.logits(places)), strict=True):
            texts[i] += tokens
            made += count
            kept += len(tokens) - 1
    return np.array([text[:length] for text in texts]), made, kept


def chi_square(tokens: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Return the statistic of texts (R, 3) against (5, 5, 5), and what chance passes once in 30,000
    times (Wilson and Hilferty, 1931); infinite if a text occurs that cannot."""
    counts = np.bincount(tokens @ np.array([25, 5, 1]), minlength=125).astype(float)
    wanted = expected.reshape(-1) * len(tokens)
    if counts[wanted == 0].any():
        return np.inf, 0.0
    rare = (wanted > 0) & (wanted < 5)  # together they are one case
    wanted = np.append(wanted[wanted >= 5], wanted[rare].sum())
    flat = expected.reshape(-1) * len(tokens)
    counts = np.append(counts[flat >= 5], counts[rare].sum())
    counts, wanted = counts[wanted > 0], wanted[wanted > 0]
    free = len(wanted) - 1
    limit = free * (1 - 2 / (9 * free) + 4 * np.sqrt(2 / (9 * free))) ** 3
    return float(((counts - wanted) ** 2 / wanted).sum()), float(limit)
