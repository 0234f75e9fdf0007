"""A GPT's weights -> the matrices of a `FusedNetwork`; the GPT goes on with views of them.

On a CPU a product with one row is a fifth to a third faster with a matrix that lies as (in, out)
than with one that lies as (out, in). Memory for the same numbers twice is not taken: each matrix is
laid out anew, and the module that had it gets a view.
"""

from typing import NamedTuple

import mlx.core as mx
import mlx.nn as nn

from mlxgpt.model import GPT
from mlxgpt.model.gpt import Decoder
from mlxgpt.model.layers import MLP, Attention, Block

_PLAIN = (GPT, Decoder, Block, Attention, MLP, nn.Linear, nn.Embedding, nn.RMSNorm)


class Matrix(NamedTuple):
    """y = x @ weight + bias."""

    weight: mx.array
    """(in, out)"""
    bias: mx.array | None

    def __call__(self, x: mx.array) -> mx.array:
        return x @ self.weight if self.bias is None else mx.addmm(self.bias, x, self.weight)

    def added(self, residual: mx.array, x: mx.array) -> mx.array:
        """Return residual + the product with x."""
        y = mx.addmm(residual, x, self.weight)
        return y if self.bias is None else y + self.bias


class FusedLayer(NamedTuple):
    """The weights of one block."""

    input_gains: mx.array
    qkv: Matrix
    """Queries, keys and values side by side: out = (H + 2 Hkv) D."""
    head_gains: mx.array | None
    """Gains of each query head and key head, (H + Hkv, D), of a model that normalizes them."""
    output: Matrix
    mlp_gains: mx.array
    gate: Matrix
    up: Matrix
    down: Matrix


class FusedWeights:
    """All matrices of a GPT for which `can_fuse` holds. Takes a layer at a time, so that there is
    never more than one matrix twice, if the model alone held its weights."""

    def __init__(self, model: GPT) -> None:
        self.layers = [_fuse(block) for block in model.layers]
        tied = model.config.tie_embeddings
        self.head = _transposed(model.model.embed_tokens if tied else model.lm_head)
        self.embedding = model.model.embed_tokens.weight
        self.gains = model.model.norm.weight


def can_fuse(model: GPT) -> bool:
    """Whether every part is the module that `GPT` makes for it, in float32, on a CPU."""
    if mx.default_device().type != mx.DeviceType.cpu:
        return False
    for _, module in model.named_modules():
        if type(module) not in _PLAIN:
            return False
        if isinstance(module, nn.RMSNorm) and module.eps != model.config.rms_norm_eps:
            return False
    return all(w.dtype == mx.float32 for w in model.weights().values())


def _fuse(block: Block) -> FusedLayer:
    attention, mlp = block.self_attn, block.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    head_gains = None
    if "q_norm" in attention:
        queries, keys = attention.q_norm.weight, attention.k_norm.weight
        heads = [m.weight.shape[0] // queries.shape[0] for m in projections]
        head_gains = mx.stack([queries] * heads[0] + [keys] * heads[1])
        mx.eval(head_gains)
    return FusedLayer(
        block.input_layernorm.weight,
        _side_by_side(projections),
        head_gains,
        _transposed(attention.o_proj),
        block.post_attention_layernorm.weight,
        _transposed(mlp.gate_proj),
        _transposed(mlp.up_proj),
        _transposed(mlp.down_proj),
    )


def _side_by_side(modules: list[nn.Linear]) -> Matrix:
    """Join matrices. They lie one below the other as (out, in): MLX would copy a part of a wider
    matrix at each product, so this keeps the GPT itself as fast as it was."""
    rows = mx.concatenate([m.weight for m in modules])
    bias = None
    if any("bias" in m for m in modules):
        zeros = [mx.zeros(m.weight.shape[0]) for m in modules]
        bias = mx.concatenate([m.get("bias", z) for m, z in zip(modules, zeros, strict=True)])
    mx.eval(rows, bias)
    begin = 0
    for module in modules:
        end = begin + module.weight.shape[0]
        module.weight = rows[begin:end]
        mx.eval(module.weight)
        begin = end
    return Matrix(rows.T, bias)


def _transposed(module: nn.Linear | nn.Embedding) -> Matrix:
    """Lay a matrix out as (in, out); nothing is copied if it lies so already."""
    weight = mx.contiguous(module.weight.T)
    mx.eval(weight)
    module.weight = weight.T
    mx.eval(module.weight)
    return Matrix(weight, module.bias if "bias" in module else None)
