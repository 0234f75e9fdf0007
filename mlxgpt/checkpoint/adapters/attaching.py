"""An adapter and a network -> that network, changed; what does not fit is refused by name first."""

from collections.abc import Iterable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from mlxgpt.checkpoint.adapters.adapter import EMBEDDING, Adapter
from mlxgpt.checkpoint.adapters.base_fingerprint import warn_of_another_base
from mlxgpt.checkpoint.adapters.tensors import listed
from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig, weight_shapes
from mlxgpt.model.lora import ADAPTED, adapted


def attach(model: GPT | BorrowedModel, adapter: Adapter) -> None:
    """Change `model` by `adapter`, in place; a quantized base stays quantized.

    The low-rank parts are float32, and are all that is left to train. Raises `CheckpointError`
    before anything is changed if the adapter does not fit, or another is attached already, and
    warns (`MLXGPTWarning`) if it was made for other weights.
    """
    if isinstance(model, BorrowedModel):
        raise CheckpointError(
            f"{adapter.source}: a network of type {model.model_type!r} is run by mlx-lm and takes "
            "no adapter here; fuse it with mlx_lm.fuse"
        )
    modules = dict(model.named_modules())
    if any(isinstance(module, ADAPTED) for module in modules.values()):
        raise CheckpointError(
            f"{adapter.source}: the model has an adapter attached already; fuse that one first"
        )
    check_fit(adapter, model.config)
    warn_of_another_base(adapter, model)
    model.freeze()
    for name, weight in adapter.weights.items():
        path, _, part = name.rpartition(".")
        modules[path] = _with_weight(modules[path], part, weight)
    changed = {path for path in modules if path in adapter.modules}
    for path in changed:
        change = adapter.modules[path]
        a, b = change.a.astype(mx.float32), change.b.astype(mx.float32)
        m = None if change.m is None else change.m.astype(mx.float32)
        modules[path] = adapted(modules[path], a, b, change.scale, m)
    replaced = changed | {name.rpartition(".")[0] for name in adapter.weights}
    new: Any = tree_unflatten([(path, modules[path]) for path in sorted(replaced)])
    model.update_modules(new)
    mx.eval(new)


def check_fit(adapter: Adapter, config: GPTConfig) -> None:
    """Raise `CheckpointError` unless `adapter` fits a network of this shape in every part."""
    where, n_layer = adapter.source, config.n_layer
    shapes = dict(weight_shapes(config))
    matrices = {
        name.removesuffix(".weight"): shape for name, shape in shapes.items() if len(shape) == 2
    }
    unknown = {p for p in adapter.modules if p not in matrices}
    unknown |= {n for n in adapter.weights if n not in shapes}
    if unknown:
        head = any(name.startswith("lm_head") for name in unknown)
        tied = " and no head of its own" if head and config.tie_embeddings else ""
        raise CheckpointError(
            f"{where}: not in this network of {n_layer} layers{tied}: {listed(unknown)}"
        )
    for path, change in adapter.modules.items():
        rows, columns = matrices[path]
        inputs, outputs = (rows, columns) if path == EMBEDDING else (columns, rows)
        _check_shape(f"{where}: 'a' of {path!r}", change.a, (inputs, change.rank))
        _check_shape(f"{where}: 'b' of {path!r}", change.b, (change.rank, outputs))
        if change.m is not None:
            _check_shape(f"{where}: 'm' of {path!r}", change.m, (rows,))
    for name, weight in adapter.weights.items():
        _check_shape(f"{where}: {name!r}", weight, shapes[name])
    if adapter.targets is not None:
        candidates: Iterable[str] = shapes if adapter.fine_tune_type == "full" else matrices
        present = adapter.weights if adapter.fine_tune_type == "full" else adapter.modules
        asked = {path for path in candidates if adapter.targets.names(path, n_layer)}
        if missing := asked - set(present):
            raise CheckpointError(f"{where}: the settings name what is missing: {listed(missing)}")
        if extra := set(present) - asked:
            raise CheckpointError(f"{where}: the settings do not name: {listed(extra)}")
    embedding = EMBEDDING in adapter.modules or f"{EMBEDDING}.weight" in adapter.weights
    if config.tie_embeddings and embedding and not adapter.head_follows_embedding:
        raise CheckpointError(
            f"{where} changes {EMBEDDING} and leaves the head as it was, but in this network they "
            "are one matrix: untie them in the base first"
        )


def _check_shape(what: str, array: mx.array, expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise CheckpointError(
            f"{what} has shape {list(array.shape)}, the network asks for {list(expected)}"
        )


def _with_weight(module: nn.Module, part: str, weight: mx.array) -> nn.Module:
    """Return `module` with another weight or bias; where it was quantized, it no longer is."""
    if part == "weight" and isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
        rows, columns = weight.shape
        dtype = (
            module.scales.dtype if mx.issubdtype(module.scales.dtype, mx.floating) else mx.bfloat16
        )
        if isinstance(module, nn.QuantizedEmbedding):
            plain: nn.Module = nn.Embedding(rows, columns)
        else:
            plain = nn.Linear(columns, rows, bias="bias" in module)
            if "bias" in module:
                plain.bias = module.bias
    else:
        plain, dtype = module, module[part].dtype
    plain[part] = weight.astype(dtype)
    plain.freeze()
    return plain
