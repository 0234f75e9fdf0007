"""Ids of a long text -> how likely a model finds it, by windows that slide over it.

A model sees so many tokens at once and no more. Windows of `context` tokens therefore advance by
`stride`, and each scores the tokens that no window before it has scored, with the rest of it to
look at. That is the way of transformers' guide "Perplexity of fixed-length models", and gives its
figures.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import mlx.core as mx
import numpy as np

from mlxgpt.config import require
from mlxgpt.infer.language_model import LanguageModel
from mlxgpt.machine.freed_arrays import keep_freed_arrays
from mlxgpt.model import GPT, CausalAttend, cross_entropy

_DEFAULT_CONTEXT = 1024
_BATCH_TOKENS = 4096
"""Tokens of a batch of windows, where the caller does not say how many windows it has."""
_LOGITS = 2**24
"""Logits that exist at once, 64 MiB in float32: 340 tokens of a vocabulary of 49,152."""


@dataclass(frozen=True)
class Window:
    """Tokens `[begin, end)` of a text are read, and those from `first` on are scored."""

    begin: int
    first: int
    end: int


@dataclass(frozen=True)
class Score:
    """What a model makes of a text, and the windows that it was read in."""

    nll: float
    """Sum of the negative log-likelihoods of the scored tokens, in nats."""
    num_tokens: int
    """How many tokens were scored."""
    context: int
    """Tokens of a window."""
    stride: int
    """Tokens from the start of a window to that of the next."""

    @property
    def mean_nll(self) -> float:
        """Nats per scored token."""
        return self.nll / self.num_tokens

    @property
    def perplexity(self) -> float:
        """exp of `mean_nll`: as uncertain as a choice among so many equally likely tokens (Jelinek
        et al., 1977); infinite where a float does not hold it."""
        try:
            return math.exp(self.mean_nll)
        except OverflowError:
            return math.inf

    def bits_per_byte(self, num_bytes: int) -> float:
        """Return bits per byte if the scored tokens spell `num_bytes`: comparable between
        tokenizers, as the figures per token are not."""
        return self.nll / math.log(2) / num_bytes


def score(
    model: GPT | LanguageModel,
    ids: Sequence[int] | np.ndarray,
    *,
    context: int | None = None,
    stride: int | None = None,
    batch_size: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Score:
    """Return how likely `model` finds the text of `ids` (at least two).

    Every token but the first is scored once. The first has nothing before it: a tokenizer that puts
    a beginning-of-text token there has all of the text scored, any other all but one token. A
    scored token sees all of the text before it, or at least context - stride tokens.

    `context` and `stride` as in `window_sizes`. `batch_size` windows are computed at once (None: as
    many as have 4096 tokens), which changes time and memory and nothing else. A network of another
    library gives the logits of a batch all at once, so there it is 1 unless it is said. `progress`
    is told how many tokens are scored so far.

    The softmax is over all ids that the model has, also those beyond its tokenizer's with which a
    vocabulary may be padded, as in other tools. Raises `ConfigError` for sizes that are not
    possible, fewer than two ids, or an id that the model does not have.
    """
    if isinstance(model, GPT):
        longest, vocab, together = model.config.context, model.config.vocab, _BATCH_TOKENS
    else:
        longest, vocab, together = model.longest, model.vocab, 0
    context, stride = window_sizes(longest, context, stride)
    if batch_size is None:
        batch_size = max(1, together // context)
    require(batch_size >= 1, f"'batch_size' must be at least 1; got {batch_size}")
    text = _checked(ids, vocab)
    keep_freed_arrays()
    nll, done = 0.0, 0
    for windows in _batches(sliding_windows(len(text), context, stride), batch_size):
        for part in _nlls(model, text, windows, max(1, _LOGITS // vocab)):
            nll += float(part.sum())
            done += len(part)
            if progress is not None:
                progress(done)
    return Score(nll, done, context, stride)


def window_sizes(longest: int | None, context: int | None, stride: int | None) -> tuple[int, int]:
    """Return (context, stride) as `score` takes them, or raise `ConfigError`.

    `context` is at most `longest`, what the model can use at once (None: any number); None: that,
    or 1024 if it is more. `stride` is below `context`, since the first token of a window cannot be
    scored in it; None: half of `context`.
    """
    if context is None:
        context = min(longest or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
    require(
        longest is None or context <= longest,
        f"'context' must be at most {longest}, which is all that this model can use; got {context}",
    )
    require(context >= 2, f"'context' must be at least 2, one token and the next; got {context}")
    if stride is None:
        stride = context // 2
    require(stride >= 1, f"'stride' must be at least 1; got {stride}")
    require(
        stride < context,
        f"'stride' must be below 'context' ({context}), since the first token of a window has "
        f"nothing before it to be predicted from; got {stride}",
    )
    return context, stride


def sliding_windows(length: int, context: int, stride: int) -> Iterator[Window]:
    """Yield the windows over `length` tokens in order; all but the last have `context` tokens."""
    first = 1
    for begin in range(0, length, stride):
        end = min(begin + context, length)
        yield Window(begin, first, end)
        if end == length:
            return
        first = end


def _batches(windows: Iterator[Window], batch_size: int) -> Iterator[list[Window]]:
    """Yield windows in groups of equal length, so that none has to be filled up."""
    for _, alike in groupby(windows, key=lambda w: w.end - w.begin):
        group = list(alike)
        for start in range(0, len(group), batch_size):
            yield group[start : start + batch_size]


def _nlls(
    model: GPT | LanguageModel, text: np.ndarray, windows: Sequence[Window], part: int
) -> Iterator[np.ndarray]:
    """Yield the negative log-likelihoods of the tokens that `windows` score, float64, `part` of
    them at a time.

    Of a network of ours only features (C numbers a token) are kept for a whole batch, and only for
    the tokens that predict a scored one; logits (V numbers) exist for a part at a time.
    """
    input_ids = np.stack([text[w.begin : w.end] for w in windows])  # (B, T)
    rows = mx.array(input_ids)
    ours = isinstance(model, GPT)
    out = model.features(rows, CausalAttend()) if ours else model(rows)  # (B, T, C) or (B, T, V)
    before = [
        np.arange(w.first, w.end) - 1 - w.begin + row * input_ids.shape[1]
        for row, w in enumerate(windows)
    ]
    out = out.reshape(-1, out.shape[-1])[mx.array(np.concatenate(before))]
    targets = np.concatenate([text[w.first : w.end] for w in windows])
    mx.eval(out)
    for start in range(0, len(targets), part):
        logits = out[start : start + part]
        if ours:
            logits = model.head(logits)
        nlls = cross_entropy(logits.astype(mx.float32), mx.array(targets[start : start + part]))
        yield np.array(nlls, dtype=np.float64)


def _checked(ids: Sequence[int] | np.ndarray, vocab: int) -> np.ndarray:
    """Return `ids` as int32 (n,), or raise `ConfigError`."""
    text = np.asarray(ids, dtype=np.int64)
    require(text.ndim == 1, f"the ids of a text are one row; got shape {text.shape}")
    require(
        len(text) >= 2, f"a text of {len(text)} tokens has none to score; at least 2 are needed"
    )
    wrong = np.flatnonzero((text < 0) | (text >= vocab))
    if len(wrong):
        place = wrong[0]
        require(False, f"token {place} is id {text[place]}; the model has ids 0 to {vocab - 1}")
    return text.astype(np.int32)
