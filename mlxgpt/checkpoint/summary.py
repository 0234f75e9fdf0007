"""A `Checkpoint` -> everything that can be told of it from small files and headers alone."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlxgpt.checkpoint.checkpoint import Checkpoint, StoredTensor
from mlxgpt.checkpoint.footprint import Footprint, footprint
from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.checkpoint.hf.quantization_settings import QuantizationSettings
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.checkpoint.shape import ModelShape, foreign_shape, own_shape
from mlxgpt.errors import TokenizerError
from mlxgpt.model import GPTConfig, Quantization
from mlxgpt.text import Tokenizer

_ATTENTION = re.compile(r"\.(\d+)\..*(k_proj|qkv|query_key_value|c_attn)", re.IGNORECASE)
"""Layer of a tensor that makes keys, under the names that are usual."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A model on disk, before anything of it is loaded. None: not known."""

    format: str
    family: str
    shape: ModelShape
    """The sizes of any model; those of a `GPT` are complete."""
    config: GPTConfig | None
    """None for an architecture that is not ours."""
    footprint: Footprint
    quantization: tuple[tuple[Quantization, int], ...]
    """How matrices are quantized, and how many, the most usual way first."""
    num_tensors: int
    kv_numbers_per_token: int | None
    """Numbers that a token adds to the key/value cache."""
    kv_numbers: int | None
    """Numbers in the cache of a text of the whole context."""
    stop_ids: tuple[int, ...]
    chat_template: bool
    tokenizer: Tokenizer | None
    tokenizer_problem: str | None
    """Why there is no tokenizer, or why it does not belong to the model."""


def summarize(checkpoint: Checkpoint) -> Summary:
    """Read what can be known without loading. Raises `CheckpointError` for a damaged or incomplete
    model; a tokenizer that is missing or damaged is told of instead."""
    config, tensors = _config(checkpoint), checkpoint.tensors()
    raw: dict[str, Any] = {}
    if config is not None:
        checkpoint.weights()  # reads none, but checks that files and config agree
        quantization, shape = checkpoint.quantization, own_shape(config)
    else:
        file = checkpoint.path / "config.json"
        raw = read_json(file) if checkpoint.format == "safetensors" else {}
        quantization = _foreign_quantization(raw, str(file), tensors)
        shape = foreign_shape(raw)
    ways = Counter(quantization.values()).most_common()
    per_layer = _kv_of_layers(config, shape, raw, tensors)
    tokenizer, problem = _tokenizer(checkpoint, shape.vocab)
    return Summary(
        format=checkpoint.format,
        family=checkpoint.family,
        shape=shape,
        config=config,
        footprint=footprint(tensors, quantization, config),
        quantization=tuple(ways),
        num_tensors=len(tensors),
        kv_numbers_per_token=None if per_layer is None else sum(n for n, _ in per_layer),
        kv_numbers=_kv_of_context(per_layer, shape.context),
        stop_ids=tuple(sorted(checkpoint.stop_ids)),
        chat_template=checkpoint.chat_template is not None,
        tokenizer=tokenizer,
        tokenizer_problem=problem,
    )


def _config(checkpoint: Checkpoint) -> GPTConfig | None:
    try:
        return checkpoint.config
    except ForeignArchitecture:
        return None


def _foreign_quantization(
    raw: dict[str, Any], where: str, tensors: Mapping[str, StoredTensor]
) -> dict[str, Quantization]:
    """Return module -> how, for a model that mlx-lm quantized: those modules that have scales."""
    group = ConfigValues(raw, where).group("quantization")
    if group is None:
        return {}
    settings = QuantizationSettings(group)
    modules = [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]
    return {module: how for module in modules if (how := settings.of(module)) is not None}


def _kv_of_layers(
    config: GPTConfig | None,
    shape: ModelShape,
    raw: Mapping[str, Any],
    tensors: Mapping[str, StoredTensor],
) -> Sequence[tuple[int, int | None]] | None:
    """Return (numbers a token adds to the cache, window) of each layer; None if that is not known.

    A foreign model must have keys in each layer, and keep them as they are.
    """
    if config is not None:
        numbers = 2 * config.kv_heads * config.head_size
        return [(numbers, config.window(i)) for i in range(config.n_layer)]
    layers, heads, size = shape.n_layer, shape.n_kv_head, shape.head_dim
    if layers is None or heads is None or size is None or "kv_lora_rank" in raw:
        return None
    with_keys = {int(found[1]) for name in tensors if (found := _ATTENTION.search(name))}
    return [(2 * heads * size, None)] * layers if with_keys == set(range(layers)) else None


def _kv_of_context(
    per_layer: Sequence[tuple[int, int | None]] | None, context: int | None
) -> int | None:
    if per_layer is None or context is None:
        return None
    return sum(numbers * min(window or context, context) for numbers, window in per_layer)


def _tokenizer(checkpoint: Checkpoint, vocab: int | None) -> tuple[Tokenizer | None, str | None]:
    try:
        tokenizer = checkpoint.tokenizer()
    except TokenizerError as e:
        return None, str(e)
    if vocab is not None and tokenizer.vocab_size > vocab:
        return tokenizer, f"it has more ids than the model ({vocab:,}): they do not belong together"
    return tokenizer, None
