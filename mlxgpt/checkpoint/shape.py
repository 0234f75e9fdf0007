"""What is known of the sizes of a model: all of a `GPT`, of others what their config.json names.

The sizes of others are for showing; mlx-lm, which runs them, reads the config itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlxgpt.model import GPTConfig

_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
_WIDTH = ("hidden_size", "n_embd", "d_model", "model_dim", "dim")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_MLP = ("intermediate_size", "n_inner", "mlp_hidden_size", "ffn_hidden_size")
_CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_THETA = ("rope_theta", "rotary_emb_base")


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder, under the names of `GPTConfig`; None for what is not known."""

    n_layer: int | None
    n_embd: int | None
    n_head: int | None
    n_kv_head: int | None
    head_dim: int | None
    intermediate_size: int | None
    experts: int | None
    """How many MLPs a layer chooses from; None: it has one."""
    experts_per_token: int | None
    context: int | None
    vocab: int | None
    rope_theta: float | None
    rope_type: str | None
    sliding_window: int | None


def own_shape(config: GPTConfig) -> ModelShape:
    """Return the sizes of a `GPT`."""
    return ModelShape(
        n_layer=config.n_layer,
        n_embd=config.n_embd,
        n_head=config.n_head,
        n_kv_head=config.kv_heads,
        head_dim=config.head_size,
        intermediate_size=config.mlp_size,
        experts=None,
        experts_per_token=None,
        context=config.context,
        vocab=config.vocab,
        rope_theta=config.rope_theta,
        rope_type=config.rope_scaling.rope_type if config.rope_scaling else None,
        sliding_window=config.sliding_window,
    )


def foreign_shape(raw: Mapping[str, Any]) -> ModelShape:
    """Return what the config.json of another architecture says of its language model."""
    inner = raw.get("text_config")  # beside the images of a model that sees them
    config = {**raw, **inner} if isinstance(inner, dict) else raw

    def size(*names: str) -> int | None:
        return next((config[n] for n in names if _is_size(config.get(n))), None)

    width, heads = size(*_WIDTH), size(*_HEADS)
    head_dim = size("head_dim")
    if head_dim is None and width is not None and heads is not None and width % heads == 0:
        head_dim = width // heads
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    rope = rope if isinstance(rope, dict) else {}
    bases = [rope.get("rope_theta"), *map(config.get, _THETA)]
    kind = rope.get("rope_type", rope.get("type"))
    return ModelShape(
        n_layer=size(*_LAYERS),
        n_embd=width,
        n_head=heads,
        n_kv_head=size(*_KV_HEADS) or heads,
        head_dim=head_dim,
        intermediate_size=size(*_MLP),
        experts=size(*_EXPERTS),
        experts_per_token=size("num_experts_per_tok"),
        context=size(*_CONTEXT),
        vocab=size("vocab_size"),
        rope_theta=next((float(b) for b in bases if _is_number(b)), None),
        rope_type=kind if isinstance(kind, str) and kind != "default" else None,
        sliding_window=size("sliding_window"),
    )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**31


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
