"""Names and order of rows: our weights <-> the tensors of a GGUF file.

A weight's name is a module's path and a part (`weight`, `bias`, and of a quantized matrix `scales`
and `biases`); only the path differs. llama.cpp turns neighbouring numbers of a head together for
some architectures, where we turn number i with i + D/2, so the rows of q and k stand in another
order in those files.
"""

from typing import TypeVar

import mlx.core as mx
import numpy as np

from mlxgpt.model import GPTConfig

Array = TypeVar("Array", mx.array, np.ndarray)

PERMUTED = {"llama": True, "qwen2": False, "qwen3": False, "smollm3": True}
"""Architectures that are our own network -> whether the rows of their q and k are permuted."""

_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_IN_A_LAYER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OUR_WHOLE = {theirs: ours for ours, theirs in _WHOLE.items()}
_OUR_IN_A_LAYER = {theirs: ours for ours, theirs in _IN_A_LAYER.items()}


def gguf_name(name: str) -> str:
    """Return what GGUF calls our weight: `model.layers.3.mlp.up_proj.weight` is
    `blk.3.ffn_up.weight`."""
    path, _, part = name.rpartition(".")
    if path in _WHOLE:
        return f"{_WHOLE[path]}.{part}"
    layer, _, module = path.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{_IN_A_LAYER[module]}.{part}"


def our_name(tensor: str) -> str | None:
    """Return our name of a GGUF tensor; None for one that is not part of our network."""
    path, _, part = tensor.rpartition(".")
    if path in _OUR_WHOLE:
        return f"{_OUR_WHOLE[path]}.{part}"
    block, _, rest = path.partition(".")
    layer, _, module = rest.partition(".")
    if block != "blk" or not (layer.isascii() and layer.isdigit()) or module not in _OUR_IN_A_LAYER:
        return None
    if str(int(layer[:9])) != layer:  # one name for each layer: not 03, and no thousand digits
        return None
    return f"model.layers.{layer}.{_OUR_IN_A_LAYER[module]}.{part}"


def permuted_heads(name: str, architecture: str, config: GPTConfig) -> int | None:
    """Return into how many heads the rows of our weight `name` fall, if a GGUF file of that
    architecture has them permuted; else None.

    Matrix, bias and the parts of a quantized matrix alike; k has its own number of heads.
    """
    module = name.rpartition(".")[0].rpartition(".")[2]
    if PERMUTED[architecture] and module == "q_proj":
        return config.n_head
    if PERMUTED[architecture] and module == "k_proj":
        return config.kv_heads
    return None


def to_gguf_rows(rows: Array, heads: int) -> Array:
    """Return the rows of our q or k in the order of GGUF: i and i + D/2 become neighbours.

    (heads * D, ...) -> the same shape.
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def from_gguf_rows(rows: Array, heads: int) -> Array:
    """Return the rows of a GGUF file's q or k in our order; the inverse of `to_gguf_rows`."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
