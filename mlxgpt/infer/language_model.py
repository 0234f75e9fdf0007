"""What can be generated from: a network as one sees it who has only ids, and wants logits.

A `GPT` is made into one here; a network of another library brings its own session and cache.
"""

from typing import Protocol

import mlx.core as mx

from mlxgpt.infer.kv_cache import KVCache
from mlxgpt.infer.quantized_kv_cache import QuantizedKVCache
from mlxgpt.model import GPT, CausalAttend

PIECE = 512
"""Usual number of prompt tokens in one forward pass."""


class Session(Protocol):
    """One text on its way through a network, in pieces; what was fed before is remembered."""

    @property
    def piece(self) -> int | None:
        """How many tokens of a prompt to give at once, to save memory; None: all."""
        ...

    def feed(self, input_ids: mx.array) -> None:
        """Take in ids (1, T), at once; nothing is wanted of them but to be remembered."""
        ...

    def logits(self, input_ids: mx.array) -> mx.array:
        """Take in ids (1, T) and return the logits (1, V) after the last one, not evaluated."""
        ...


class LanguageModel(Protocol):
    """Token ids -> logits over the next one."""

    @property
    def vocab(self) -> int:
        """Number of ids V."""
        ...

    @property
    def longest(self) -> int | None:
        """How many tokens a text may have; None: any number."""
        ...

    def __call__(self, input_ids: mx.array) -> mx.array:
        """Return logits (B, T, V) for ids (B, T), computed without a cache."""
        ...

    def session(self) -> Session:
        """Start a text."""
        ...


class SlidingGPT:
    """A `GPT` over texts of any length: beyond its context, attention slides."""

    longest = None

    def __init__(self, model: GPT, kv_bits: int | None = None) -> None:
        """`kv_bits` is how many bits a number of the cache has, 8 or 4; None: as it is. Raises
        `ConfigError` for a model whose heads cannot be packed."""
        self._model = model
        self._kv_bits = kv_bits
        self._attend = CausalAttend(window=model.config.context)
        self._cache()

    @property
    def vocab(self) -> int:
        return self._model.config.vocab

    def __call__(self, input_ids: mx.array) -> mx.array:
        return self._model(input_ids, self._attend)

    def session(self) -> "GPTSession":
        return GPTSession(self._model, self._cache())

    def _cache(self) -> KVCache | QuantizedKVCache:
        config = self._model.config
        if self._kv_bits is None:
            return KVCache(config.n_layer, window=config.context)
        return QuantizedKVCache(
            config.n_layer, config.context, head_dim=config.head_size, bits=self._kv_bits
        )


class GPTSession:
    """A text over a cache."""

    def __init__(self, model: GPT, cache: KVCache | QuantizedKVCache) -> None:
        self._model = model
        self._cache = cache

    @property
    def piece(self) -> int | None:
        scaling = self._model.config.rope_scaling
        # There every token of a piece is turned by an angle that depends on the end of the piece.
        return None if scaling is not None and scaling.rope_type == "dynamic" else PIECE

    def feed(self, input_ids: mx.array) -> None:
        mx.eval(self._model.features(input_ids, self._cache))

    def logits(self, input_ids: mx.array) -> mx.array:
        return self._model.head(self._model.features(input_ids, self._cache)[:, -1])


def language_model(model: GPT | LanguageModel) -> LanguageModel:
    """Return `model` as something to generate from."""
    return SlidingGPT(model) if isinstance(model, GPT) else model
