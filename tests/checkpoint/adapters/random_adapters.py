"""Random adapters for small networks, and what their logits should be by the plainest way."""

from collections.abc import Iterable

import mlx.core as mx
import numpy as np

from mlxgpt import seeding
from mlxgpt.checkpoint.adapters import Adapter, LowRank
from mlxgpt.model import GPT, GPTConfig, weight_shapes

IDS = mx.array(np.random.Generator(np.random.Philox(key=3)).integers(0, 60, (2, 24)).tolist())
TOLERANCE = 1e-4
QUERIES = ("self_attn.q_proj", "self_attn.v_proj")
ALL = tuple(
    f"{part}_proj"
    for part in (
        *("self_attn." + x for x in "qkvo"), "mlp.gate", "mlp.up", "mlp.down"
    )
)  # fmt: skip


def noise(purpose: str, *shape: int) -> mx.array:
    return mx.random.normal(shape, key=seeding.key(5, f"test/{purpose}"))


def paths(layers: Iterable[int], keys: Iterable[str]) -> list[str]:
    return [f"model.layers.{i}.{key}" for i in layers for key in keys]


def random_change(
    config: GPTConfig, path: str, rank: int = 4, scale: float = 1.5, dora: bool = False
) -> LowRank:
    """A change of one module that matters in the logits."""
    rows, columns = dict(weight_shapes(config))[f"{path}.weight"]
    first, last = (rows, columns) if "embed" in path else (columns, rows)
    return LowRank(
        a=noise(f"{path}.a", first, rank) / first**0.5,
        b=noise(f"{path}.b", rank, last) / 2,
        scale=scale,
        m=1 + mx.abs(noise(f"{path}.m", rows)) if dora else None,
    )


def random_adapter(
    config: GPTConfig, modules: Iterable[str], rank: int = 4, scale: float = 1.5, dora: bool = False
) -> Adapter:
    changes = {path: random_change(config, path, rank, scale, dora) for path in modules}
    return Adapter(fine_tune_type="dora" if dora else "lora", modules=changes)


def plainly(model: GPT, adapter: Adapter) -> GPT:
    """A network like `model` with the changed matrices, made with NumPy in double precision."""
    weights = dict(model.weights())
    for path, change in adapter.modules.items():
        product = np.array(change.a, np.float64) @ np.array(change.b, np.float64)
        w = np.array(weights[f"{path}.weight"], np.float64)
        w = w + change.scale * (product if "embed" in path else product.T)
        if change.m is not None:
            w = np.array(change.m)[:, None] * w / np.linalg.norm(w, axis=1, keepdims=True)
        weights[f"{path}.weight"] = mx.array(w.astype(np.float32))
    result = GPT(model.config)
    result.set_weights(weights | dict(adapter.weights))
    return result


def difference(one: mx.array, other: mx.array) -> float:
    """The largest difference of two sets of logits that are worth comparing."""
    first, second = np.array(one), np.array(other)
    assert first.std() > 0.1
    return float(np.abs(first - second).max())
