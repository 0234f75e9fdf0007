"""The parts of a block: x (B, T, C) -> x (B, T, C). Module and weight names are Llama's."""

import mlx.core as mx
import mlx.nn as nn

from mlxgpt.model.attend import Attend
from mlxgpt.model.config import GPTConfig
from mlxgpt.model.dropout import Dropout
from mlxgpt.model.kernels import swiglu
from mlxgpt.model.rotary import Rotary


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al., 2023): n_kv_head = n_head is MHA, 1 is MQA.

    With `qk_norm` each head of q and k is normalized before it is rotated; some layers may go
    without rotary positions.
    """

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        c, d = config.n_embd, config.head_size
        self._layer = layer
        self._heads, self._kv_heads, self._head_dim = config.n_head, config.kv_heads, d
        self._window = config.window(layer)
        has_rotary = layer not in config.no_rope_layers
        self._rotary = Rotary(d, config.rope_theta, config.rope_scaling) if has_rotary else None
        self.q_proj = nn.Linear(c, config.n_head * d, bias=config.qkv_bias)
        self.k_proj = nn.Linear(c, config.kv_heads * d, bias=config.qkv_bias)
        self.v_proj = nn.Linear(c, config.kv_heads * d, bias=config.qkv_bias)
        self.o_proj = nn.Linear(config.n_head * d, c, bias=config.o_bias)
        self._qk_norm = config.qk_norm
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(d, config.rms_norm_eps)
            self.k_norm = nn.RMSNorm(d, config.rms_norm_eps)

    def __call__(self, x: mx.array, attend: Attend) -> mx.array:
        b, t, _ = x.shape

        def heads(y: mx.array, count: int) -> mx.array:  # (B, T, H D) -> (B, H, T, D)
            return y.reshape(b, t, count, self._head_dim).transpose(0, 2, 1, 3)

        q = heads(self.q_proj(x), self._heads)
        k = heads(self.k_proj(x), self._kv_heads)
        v = heads(self.v_proj(x), self._kv_heads)
        if self._qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self._rotary is not None:
            offset = attend.offset(self._layer)
            q, k = self._rotary(q, offset), self._rotary(k, offset)
        out = attend(self._layer, q, k, v, self._window)
        return self.o_proj(out.transpose(0, 2, 1, 3).reshape(b, t, -1))


class MLP(nn.Module):
    """SwiGLU (Shazeer, 2020): down(silu(gate x) * up x)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.n_embd, config.mlp_size, bias=config.mlp_bias)
        self.up_proj = nn.Linear(config.n_embd, config.mlp_size, bias=config.mlp_bias)
        self.down_proj = nn.Linear(config.mlp_size, config.n_embd, bias=config.mlp_bias)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class Block(nn.Module):
    """Pre-norm residual block: attention, then the MLP."""

    def __init__(self, config: GPTConfig, layer: int) -> None:
        super().__init__()
        self._layer = layer
        self.input_layernorm = nn.RMSNorm(config.n_embd, config.rms_norm_eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = nn.RMSNorm(config.n_embd, config.rms_norm_eps)
        self.mlp = MLP(config)

    def __call__(self, x: mx.array, attend: Attend, dropout: Dropout | None) -> mx.array:
        y = self.self_attn(self.input_layernorm(x), attend)
        x = x + (dropout(y, 2 * self._layer + 1) if dropout else y)
        y = self.mlp(self.post_attention_layernorm(x))
        return x + (dropout(y, 2 * self._layer + 2) if dropout else y)
