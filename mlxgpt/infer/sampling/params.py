"""How the tokens of a text are chosen: every setting of a request, checked. No MLX."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any

from mlxgpt import seeding
from mlxgpt.config import require
from mlxgpt.infer.sampling.logit_bias import LogitBias

_SEEDS = 2**48 - 1
"""Derived seeds stay exact in every reader of JSON, and short enough to type."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen. Raises `ConfigError` for a value out of range, or of another kind.

    They act in this order: `logit_bias`, `repetition_penalty`, `presence_penalty` and
    `frequency_penalty` on the logits, then `temperature`, `top_k`, `top_p` and `min_p`.
    """

    temperature: float = 1.0
    """Divides the logits; 0 is greedy: the likeliest token, the lowest id among equals."""
    top_k: int | None = None
    """Keep the k likeliest tokens, and those that tie with the k-th."""
    top_p: float | None = None
    """Keep the smallest set of likeliest tokens whose mass reaches p (Holtzman et al., 2020)."""
    min_p: float | None = None
    """Keep tokens with at least this share of the likeliest one's probability."""
    repetition_penalty: float = 1.0
    """Divides positive logits of all tokens of prompt and text so far, and multiplies negative ones
    (Keskar et al., 2019); above 1 they become less likely."""
    presence_penalty: float = 0.0
    """Taken from the logits of all tokens written so far; the prompt does not count."""
    frequency_penalty: float = 0.0
    """The same, times how often the token has been written."""
    logit_bias: Mapping[int, float] = field(default_factory=LogitBias)
    """Added to the logits of these ids; kept as an immutable mapping."""
    max_tokens: int = 200
    """How many tokens to generate at most."""
    stop: tuple[str, ...] = ()
    """The text ends before any of these strings; one string alone may be given as it is."""
    stop_ids: frozenset[int] = frozenset()
    """The text ends with any of these ids, beside those that end every text."""
    seed: int = 0
    """Decides every draw: token i of a text depends on (seed, i) and the distribution alone."""
    logprobs: int | None = None
    """Report the log-probability of each token, and of so many likeliest ones at its place."""
    n: int = 1
    """How many texts to write, each with a seed of its own."""

    def __post_init__(self) -> None:
        self._number("temperature", at_least=0)
        self._number("repetition_penalty", above=0)
        self._number("presence_penalty")
        self._number("frequency_penalty")
        self._whole("max_tokens", at_least=0)
        self._whole("seed")
        self._whole("n", at_least=1)
        if self.top_k is not None:
            self._whole("top_k", at_least=1)
        if self.top_p is not None:
            self._number("top_p", above=0, at_most=1)
        if self.min_p is not None:
            self._number("min_p", at_least=0, at_most=1)
        if self.logprobs is not None:
            self._whole("logprobs", at_least=0)
        self._set("logit_bias", _biases(self.logit_bias))
        self._set("stop", _stops(self.stop))
        self._set("stop_ids", _ids(self.stop_ids))

    @property
    def penalized(self) -> bool:
        """Whether what was written changes the logits of what follows."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )

    def choice(self, index: int) -> "SamplingParams":
        """Return the parameters of one of the `n` texts alone: n = 1, and a seed of its own.

        The first has the seed of the request. Raises `ConfigError` if there is no such text.
        """
        require(0 <= index < self.n, f"there is no text {index} of {self.n}, counted from 0")
        if index == 0:
            return self if self.n == 1 else replace(self, n=1)
        return replace(self, n=1, seed=seeding.derive(self.seed, "choice", index) & _SEEDS)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _number(
        self,
        name: str,
        *,
        above: float = -math.inf,
        at_least: float = -math.inf,
        at_most: float = math.inf,
    ) -> None:
        """Check a number and keep it as a float."""
        value: Any = getattr(self, name)
        limits = {"above": above, "at least": at_least, "at most": at_most}
        wanted = " and ".join(f"{word} {x:g}" for word, x in limits.items() if math.isfinite(x))
        require(
            _is_number(value) and above < value and at_least <= value <= at_most,
            f"'{name}' must be a finite number{wanted and ', '}{wanted}; got {value!r}",
        )
        self._set(name, float(value))

    def _whole(self, name: str, *, at_least: int | None = None) -> None:
        """Check a whole number."""
        value: Any = getattr(self, name)
        wanted = "" if at_least is None else f", at least {at_least}"
        require(
            _is_whole(value) and (at_least is None or value >= at_least),
            f"'{name}' must be a whole number{wanted}; got {value!r}",
        )
        self._set(name, int(value))


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _biases(value: Any) -> LogitBias:
    if isinstance(value, LogitBias):
        return value
    require(
        isinstance(value, Mapping),
        f"'logit_bias' must be a mapping of ids to numbers; got {value!r}",
    )
    for token_id, bias in value.items():
        require(
            _is_whole(token_id) and token_id >= 0,
            f"'logit_bias' must have ids, 0 or above, as keys; got {token_id!r}",
        )
        require(
            _is_number(bias),
            f"'logit_bias' of id {token_id} must be a finite number; got {bias!r}",
        )
    return LogitBias({int(token_id): float(bias) for token_id, bias in value.items()})


def _stops(value: Any) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    require(
        isinstance(stops, tuple | list) and all(isinstance(stop, str) for stop in stops),
        f"'stop' must be strings; got {value!r}",
    )
    require(all(stops), "'stop' has an empty string, which would end every text; leave it out")
    return tuple(stops)


def _ids(value: Any) -> frozenset[int]:
    ids: list[Any] = [value]
    if isinstance(value, Iterable) and not isinstance(value, str):
        ids = list(value)
    for token_id in ids:
        require(
            _is_whole(token_id) and token_id >= 0,
            f"'stop_ids' must be ids, 0 or above; got {token_id!r}",
        )
    return frozenset(map(int, ids))
