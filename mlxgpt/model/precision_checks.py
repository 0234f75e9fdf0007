"""A tiny GPT in half precision, held against itself in float32 on the default device."""

from functools import cache
from typing import cast

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxgpt import seeding
from mlxgpt.machine.device_check import HALF_AGAINST_FLOAT32, DeviceCheck, check
from mlxgpt.model.config import GPTConfig
from mlxgpt.model.gpt import GPT
from mlxgpt.model.kernels import cross_entropy

FORWARD = {"float16": 1e-2, "bfloat16": 8e-2}
"""Allowed for logits, relative to the largest: about ten times what rounding to 11 and 8 bits after
each operation made of them on a CPU."""
GRADIENTS = {"float16": 2e-2, "bfloat16": 1.5e-1}
"""Allowed for all gradients together, relative to their norm; found in the same way."""

_CONFIG = GPTConfig(
    n_layer=2, n_embd=128, n_head=4, n_kv_head=2, vocab_size=97, max_seq_len=48, qk_norm=True
)


def check_precisions() -> list[DeviceCheck]:
    """Check logits and gradients of a tiny GPT in float16 and bfloat16."""
    checks = []
    for dtype in ("float16", "bfloat16"):
        against = HALF_AGAINST_FLOAT32
        forward, gradients = FORWARD[dtype], GRADIENTS[dtype]
        checks += [
            check(f"logits, {dtype}", against, forward, lambda d=dtype: _logits_apart(d)),
            check(f"gradients, {dtype}", against, gradients, lambda d=dtype: _gradients_apart(d)),
        ]
    return checks


def _logits_apart(dtype: str) -> float:
    got, wanted = (_logits_and_gradients(d)[0] for d in (dtype, "float32"))
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


def _gradients_apart(dtype: str) -> float:
    got, wanted = (_logits_and_gradients(d)[1] for d in (dtype, "float32"))
    return float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))


@cache
def _logits_and_gradients(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits of two texts, and the gradients of all weights in one row, float64."""
    model = GPT(_CONFIG)
    weights = {}
    for name, old in model.weights().items():
        noise = seeding.generator(0, f"precision-check/{name}").normal(size=old.shape)
        values = 1 + 0.1 * noise if old.ndim == 1 else noise * old.shape[-1] ** -0.5
        weights[name] = mx.array(values.astype(np.float32)).astype(getattr(mx, dtype))
    model.set_weights(weights)
    draw = seeding.generator(0, "precision-check/ids")
    ids = mx.array(draw.integers(0, _CONFIG.vocab, (2, _CONFIG.max_seq_len + 1), dtype=np.int32))

    def loss(parameters: dict) -> mx.array:
        model.update(parameters)
        return cross_entropy(model(ids[:, :-1]).astype(mx.float32), ids[:, 1:]).mean()

    logits = _float64(model(ids[:, :-1]))
    gradients = mx.grad(loss)(model.parameters())
    flat = cast(list[tuple[str, mx.array]], tree_flatten(gradients))
    return logits, np.concatenate([_float64(g).reshape(-1) for _, g in flat])


def _float64(x: mx.array) -> np.ndarray:
    return np.array(x.astype(mx.float32)).astype(np.float64)
