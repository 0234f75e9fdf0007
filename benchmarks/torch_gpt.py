"""The 0.8m network and its AdamW step in plain PyTorch: the peer of the training benchmark."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from mlxgpt.model import GPTConfig


class Block(nn.Module):
    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        c, f = config.n_embd, config.mlp_size
        self.config = config
        self.norm1, self.norm2 = (
            nn.RMSNorm(c, config.rms_norm_eps),
            nn.RMSNorm(c, config.rms_norm_eps),
        )
        self.q, self.k, self.v, self.o = (nn.Linear(c, c, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(c, f, bias=False), nn.Linear(c, f, bias=False)
        self.down = nn.Linear(f, c, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        y = self.norm1(x)
        q, k, v = (
            m(y).view(b, t, self.config.n_head, -1).transpose(1, 2)
            for m in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, c))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class TorchGPT(nn.Module):
    """MHA only, tied embedding."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        assert config.kv_heads == config.n_head
        self.embed = nn.Embedding(config.vocab, config.n_embd)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.norm = nn.RMSNorm(config.n_embd, config.rms_norm_eps)
        half = config.head_size // 2
        inverse = config.rope_theta ** (-torch.arange(half) / half)
        angles = torch.arange(config.max_seq_len)[:, None] * inverse
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embed.weight)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def stepper(config: GPTConfig, ids: Any, targets: Any) -> Any:
    """Return a function that does one AdamW step on a fixed batch and returns the loss."""
    model = TorchGPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=True)
    ids, targets = torch.from_numpy(ids).long(), torch.from_numpy(targets).long()

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step
