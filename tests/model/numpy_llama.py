"""The network as its papers write it, in NumPy float64: slow, obvious, for comparison only."""

import mlx.core as mx
import numpy as np

from mlxgpt.model import GPT, GPTConfig


def logits(model: GPT, ids: list[int], window: int | None = None) -> np.ndarray:
    """Return logits (T, V) of one text; a token sees the last `window` ones, itself included."""
    config = model.config
    w = {n: np.array(a.astype(mx.float32), dtype=np.float64) for n, a in model.weights().items()}
    x = w["model.embed_tokens.weight"][ids]
    for i in range(config.n_layer):
        p = f"model.layers.{i}."
        y = norm(x, w[p + "input_layernorm.weight"], config)
        q, k, v = (y @ w[f"{p}self_attn.{n}_proj.weight"].T for n in "qkv")
        x = x + attention(q, k, v, config, window) @ w[p + "self_attn.o_proj.weight"].T
        y = norm(x, w[p + "post_attention_layernorm.weight"], config)
        gate = y @ w[p + "mlp.gate_proj.weight"].T
        up = y @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "mlp.down_proj.weight"].T
    x = norm(x, w["model.norm.weight"], config)
    return x @ w["model.embed_tokens.weight" if config.tie_embeddings else "lm_head.weight"].T


def norm(x: np.ndarray, gain: np.ndarray, config: GPTConfig) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.rms_norm_eps) * gain


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, config: GPTConfig, window: int | None
) -> np.ndarray:
    """Attend token by token and head by head; q (T, H D), k and v (T, Hkv D)."""
    length, d = len(q), config.head_size
    out = np.zeros_like(q)
    for h in range(config.n_head):
        g = h // (config.n_head // config.kv_heads)
        queries = q[:, h * d : (h + 1) * d]
        keys, values = k[:, g * d : (g + 1) * d], v[:, g * d : (g + 1) * d]
        for t in range(length):
            seen = range(max(0, t + 1 - (window or length)), t + 1)
            turned = rotate(queries[t], t, config.rope_theta)
            scores = np.array(
                [turned @ rotate(keys[s], s, config.rope_theta) / np.sqrt(d) for s in seen]
            )
            weights = np.exp(scores - scores.max())
            out[t, h * d : (h + 1) * d] = weights / weights.sum() @ values[list(seen)]
    return out


def rotate(x: np.ndarray, position: int, theta: float) -> np.ndarray:
    """Turn the pairs (i, i + D/2) of x (D,) by position * theta ** (-2 i / D)."""
    half = len(x) // 2
    angle = position * theta ** (-np.arange(half) / half)
    a, b = x[:half], x[half:]
    return np.concatenate(
        [a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)]
    )
