"""Metadata and tensors of a GGUF file -> the `GPTConfig` of its network.

What the file does not say follows from which tensors it holds: biases, and whether the embedding is
the head too. A key of the architecture that is not known here is refused, since it may change what
the network computes.
"""

from collections.abc import Mapping

import numpy as np

from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.checkpoint.gguf.header import TensorPlace
from mlxgpt.checkpoint.gguf.metadata import Metadata
from mlxgpt.checkpoint.gguf.rope_factors import ROPE_FACTORS, llama3_scaling
from mlxgpt.checkpoint.gguf.tensor_names import PERMUTED
from mlxgpt.errors import CheckpointError, ConfigError, one_line
from mlxgpt.model import GPTConfig, RopeScaling

_READ = {
    ".context_length", ".embedding_length", ".block_count", ".feed_forward_length", ".vocab_size",
    ".attention.head_count", ".attention.head_count_kv", ".attention.key_length",
    ".attention.value_length", ".attention.layer_norm_rms_epsilon", ".attention.sliding_window",
    ".rope.dimension_count", ".rope.freq_base", ".rope.scale_linear", ".rope.scaling.type",
    ".rope.scaling.factor", ".rope.scaling.original_context_length",
    ".rope.scaling.attn_factor", ".rope.scaling.yarn_attn_factor",
    ".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow",
}  # fmt: skip
_WITHOUT_EFFECT = {".rope.scaling.finetuned", ".tensor_data_layout", ".pooling_type"}
_ONLY_AS: dict[str, object] = {
    ".expert_count": 0, ".expert_used_count": 0, ".attention.causal": True,
    ".attention.scale": 0.0, ".logit_scale": 1.0, ".embedding_scale": 1.0, ".residual_scale": 1.0,
    ".use_parallel_residual": False, ".rope.scaling.yarn_ext_factor": 1.0,
    ".rope.scaling.yarn_log_multiplier": 0.0, ".attention.clamp_kqv": 0.0,
    ".attention.max_alibi_bias": 0.0,
}  # fmt: skip
"""Keys that other values would give a meaning which this network lacks."""
_NO_ROPE_STEP = 4
"""In a SmolLM 3 every fourth layer is without positions; the file does not say so."""


def from_gguf(
    metadata: Metadata, tensors: Mapping[str, TensorPlace], rope_factors: np.ndarray | None = None
) -> GPTConfig:
    """Return the config.

    `rope_factors` are the numbers of the tensor `rope_freqs.weight`, if there is one. Raises
    `CheckpointError` for a key that is missing, of a wrong type or not known, for sizes that
    contradict each other, and for an architecture that is not ours.
    """
    architecture, where = metadata.architecture, metadata.where
    if architecture not in PERMUTED:
        raise ForeignArchitecture(
            f"{where}: GGUF files of the architecture {architecture[:60]!r} are not supported; "
            f"known: {', '.join(PERMUTED)}",
            architecture,
        )
    _check_keys(metadata)
    layers, heads = metadata.size(".block_count"), metadata.size(".attention.head_count")
    width = metadata.size(".embedding_length")
    head_dim = _head_dim(metadata, width, heads)
    theta = metadata.number(".rope.freq_base", 10000.0)
    # A file that asks for more layers than it has tensors is refused before they are listed.
    if layers > len(tensors):
        raise CheckpointError(f"{where}: {layers} layers, but only {len(tensors)} tensors")
    no_rope = range(_NO_ROPE_STEP - 1, layers, _NO_ROPE_STEP) if architecture == "smollm3" else ()
    try:
        return GPTConfig(
            n_layer=layers,
            n_embd=width,
            n_head=heads,
            n_kv_head=_size(metadata, ".attention.head_count_kv"),
            head_dim=head_dim,
            intermediate_size=metadata.size(".feed_forward_length"),
            vocab_size=_vocab_size(metadata, tensors),
            max_seq_len=metadata.size(".context_length"),
            rope_theta=theta,
            rms_norm_eps=metadata.number(".attention.layer_norm_rms_epsilon"),
            tie_embeddings="output.weight" not in tensors,
            rope_scaling=_rope_scaling(metadata, head_dim, theta, rope_factors),
            no_rope_layers=tuple(no_rope),
            sliding_window=_window(metadata),
            qkv_bias="blk.0.attn_q.bias" in tensors,
            o_bias="blk.0.attn_output.bias" in tensors,
            mlp_bias="blk.0.ffn_gate.bias" in tensors,
            qk_norm=architecture == "qwen3",
        )
    except ConfigError as e:
        raise CheckpointError(f"{where}: {e}") from e


def _check_keys(metadata: Metadata) -> None:
    prefix = metadata.architecture + "."
    for key, value in metadata.values.items():
        end = "." + key.removeprefix(prefix)
        if not key.startswith(prefix) or end in _READ | _WITHOUT_EFFECT:
            continue
        if end not in _ONLY_AS or value != _ONLY_AS[end]:
            asked = one_line(f"{key[:80]} = {str(value)[:60]}")
            raise CheckpointError(f"{metadata.where}: {asked} is not supported")


def _size(metadata: Metadata, name: str) -> int | None:
    return metadata.size(name) if metadata.has(name) else None


def _window(metadata: Metadata) -> int | None:
    """Return the sliding window; 0 says that there is none."""
    name = ".attention.sliding_window"
    if not metadata.has(name) or metadata.values[metadata.key(name)] == 0:
        return None
    return metadata.size(name)


def _head_dim(metadata: Metadata, width: int, heads: int) -> int | None:
    head_dim = _size(metadata, ".attention.key_length")
    if head_dim is None and width % heads == 0:
        head_dim = width // heads
    for name in (".attention.value_length", ".rope.dimension_count"):
        other = _size(metadata, name)
        if other is not None and other != head_dim:
            raise CheckpointError(
                f"{metadata.where}: {metadata.key(name)} = {other} is not supported for heads of "
                f"{head_dim}; it must be the same"
            )
    return head_dim


def _vocab_size(metadata: Metadata, tensors: Mapping[str, TensorPlace]) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError(f"{metadata.where}: missing: the matrix 'token_embd.weight'")
    rows = embedding.shape[0]
    named = _size(metadata, ".vocab_size")
    if named is not None and named != rows:
        raise CheckpointError(
            f"{metadata.where}: {metadata.key('.vocab_size')} is {named}, but 'token_embd.weight' "
            f"has {rows} rows"
        )
    return rows


def _rope_scaling(
    metadata: Metadata, head_dim: int | None, theta: float, factors: np.ndarray | None
) -> RopeScaling | None:
    named = metadata.has(".rope.scaling.type")
    kind = metadata.text(".rope.scaling.type") if named else "linear"
    factor = metadata.number(".rope.scaling.factor", 0) or metadata.number(".rope.scale_linear", 0)
    if kind == "none" or not factor:
        factor = 1.0
    if factors is not None:
        if factor != 1:
            raise CheckpointError(
                f"{metadata.where}: both '{ROPE_FACTORS}' and {metadata.key('.rope.scaling.type')} "
                f"{kind!r} is not supported"
            )
        return llama3_scaling(factors, head_dim or 0, theta, metadata.where)
    if factor == 1 and kind in ("none", "linear", "yarn"):
        return None
    if kind == "linear":
        return RopeScaling(rope_type="linear", factor=factor)
    if kind != "yarn":
        raise CheckpointError(
            f"{metadata.where}: {metadata.key('.rope.scaling.type')} {kind[:60]!r} is not "
            "supported; known: none, linear, yarn"
        )
    original = _size(metadata, ".rope.scaling.original_context_length")
    sharper = metadata.number(".rope.scaling.attn_factor", 1.0)
    sharper *= metadata.number(".rope.scaling.yarn_attn_factor", 1.0)
    scaling = RopeScaling(
        rope_type="yarn",
        factor=factor,
        original_max_position_embeddings=original or metadata.size(".context_length"),
        beta_fast=metadata.number(".rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=metadata.number(".rope.scaling.yarn_beta_slow", 1.0),
    )
    if sharper == 1:
        return scaling
    # The factor of the file comes on top of the one by the paper's formula.
    fields = {name: getattr(scaling, name) for name in RopeScaling.__dataclass_fields__}
    return RopeScaling(**{**fields, "attention_factor": sharper * scaling.query_scale})
