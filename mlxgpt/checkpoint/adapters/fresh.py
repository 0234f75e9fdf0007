"""A base and what of it is to change -> an adapter that changes nothing yet, to be trained."""

import math
from typing import Literal

import mlx.core as mx

from mlxgpt import seeding
from mlxgpt.checkpoint.adapters.adapter import EMBEDDING, Adapter, LowRank
from mlxgpt.checkpoint.adapters.mlx_form import LastLayers, relative
from mlxgpt.config import require
from mlxgpt.errors import did_you_mean
from mlxgpt.model import GPT, GPTConfig, weight_shapes
from mlxgpt.model.lora import row_lengths

_HEAD = "lm_head"


def fresh_adapter(
    model: GPT,
    *,
    method: Literal["lora", "dora"],
    rank: int,
    scale: float,
    dropout: float,
    num_layers: int | None,
    targets: tuple[str, ...] | None,
    seed: int,
) -> Adapter:
    """Return the adapter that training begins with.

    `a` is uniform within 1 / sqrt(its rows), a function of `seed` and of the module's path, `b` is
    0, and `m` of DoRA is the length of the base's rows: the first logits are the base's. It changes
    the last `num_layers` layers, or all; in each the matrices `targets` (`q_proj`, or
    `self_attn.q_proj`), or all seven. `model.embed_tokens`, and `lm_head` where there is one, are
    changed if they are named. The base may be quantized. Raises `ConfigError`.
    """
    config = model.config
    shapes = {name: shape for name, shape in weight_shapes(config) if len(shape) == 2}
    keys = _keys(config, [name.removesuffix(".weight") for name in shapes], targets)
    last = LastLayers(frozenset(keys), _last_layers(config, num_layers))
    modules = dict(model.named_modules())
    changes = {}
    for name, (rows, columns) in shapes.items():
        path = name.removesuffix(".weight")
        if not last.names(path, config.n_layer):
            continue
        inputs, outputs = (rows, columns) if path == EMBEDDING else (columns, rows)
        bound = 1 / math.sqrt(inputs)
        key = seeding.key(seed, f"adapter/{path}")
        changes[path] = LowRank(
            a=mx.random.uniform(-bound, bound, (inputs, rank), key=key),
            b=mx.zeros((rank, outputs)),
            scale=scale,
            m=row_lengths(modules[path]) if method == "dora" else None,
        )
    mx.eval([(change.a, change.b) for change in changes.values()])
    mx.eval([change.m for change in changes.values() if change.m is not None])
    return Adapter(
        fine_tune_type=method,
        modules=changes,
        targets=last,
        dropout=dropout,
        source="the new adapter",
    )


def trained_names(config: GPTConfig, num_layers: int | None) -> frozenset[str]:
    """Return the names of the weights in the last `num_layers` layers; None: those of all weights.

    Raises `ConfigError` if there are not so many layers.
    """
    names = [name for name, _ in weight_shapes(config)]
    if num_layers is None:
        return frozenset(names)
    first = config.n_layer - _last_layers(config, num_layers)
    wanted = {f"model.layers.{i}." for i in range(first, config.n_layer)}
    return frozenset(name for name in names if name.startswith(tuple(wanted)))


def train_only(model: GPT, names: frozenset[str]) -> Adapter | None:
    """Freeze all weights of `model` but `names`, which are the same in each layer that has any.

    Returns these as an adapter of whole weights; None if nothing is frozen. The weights must not be
    quantized.
    """
    weights = model.weights()
    assert names <= weights.keys(), "a packed weight cannot be trained"
    if len(names) == len(weights):
        return None
    model.freeze()
    for path, module in model.named_modules():
        parts = [part for part in module if f"{path}.{part}" in names]
        if parts:
            module.unfreeze(recurse=False, keys=parts)
    layers = {name.split(".")[2] for name in names if name.startswith("model.layers.")}
    return Adapter(
        fine_tune_type="full",
        weights={name: weights[name] for name in weights if name in names},
        targets=LastLayers(frozenset(relative(name) for name in names), len(layers)),
        source="the new adapter",
    )


def _last_layers(config: GPTConfig, num_layers: int | None) -> int:
    """Return how many layers are meant, in mlx-lm's way of counting: -1 is all."""
    if num_layers is None:
        return -1
    require(
        1 <= num_layers <= config.n_layer,
        f"'num_layers' must be from 1 to {config.n_layer}, the layers of this model; got "
        f"{num_layers}",
    )
    return num_layers


def _keys(config: GPTConfig, paths: list[str], targets: tuple[str, ...] | None) -> list[str]:
    """Return what the modules are called: in a layer relative to it, else by their path."""
    in_layer = sorted({relative(path) for path in paths if relative(path) != path})
    if targets is None:
        return in_layer
    known = {key.rpartition(".")[2]: key for key in in_layer} | {key: key for key in in_layer}
    known |= {path: path for path in paths if relative(path) == path}
    for name in targets:
        tied = (
            " (in this model it is the embedding)"
            if name == _HEAD and config.tie_embeddings
            else ""
        )
        hint = tied or did_you_mean(name, known)
        require(name in known, f"there is no matrix '{name}' to change{hint}")
    return sorted({known[name] for name in targets})
