"""A model -> a short text that names it by its weights, whatever files they stand in.

An adapter carries the one of its base. From each matrix 256 numbers at fixed places go in, 32 from
each of 8 rows, from each vector 64; so it costs little however large the model is, and training
changes it, since that moves almost every number.
"""

import hashlib
import warnings
from collections.abc import Iterator, Mapping

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlxgpt.checkpoint.adapters.adapter import Adapter
from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.model import GPT, Quantization, weight_shapes

_ROWS, _IN_A_ROW, _IN_A_VECTOR = 8, 32, 64
_GOLDEN = (5**0.5 - 1) / 2

Stored = tuple[str, Mapping[str, mx.array], Quantization | None]
"""Name of a weight, its array or those that it is packed in, and how."""


def base_fingerprint(model: GPT | Checkpoint) -> str:
    """Return 32 hexadecimal digits that depend on the shape and on the weights of `model`.

    They are the same for the same numbers in another file format, precision or split. Numbers are
    compared as float32, packed ones unpacked, and vectors as bfloat16, which is what a GPU may make
    of them. A network must have no adapter attached; a checkpoint is read once from end to end,
    and raises what `Checkpoint.weights` raises.
    """
    config = model.config
    samples = {}
    for name, parts, how in _of_network(model) if isinstance(model, GPT) else _of_files(model):
        samples[name] = _sample(parts, how)
        if not isinstance(model, GPT):
            mx.eval(samples[name])  # the whole weight can go
    mx.eval(samples)
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{config.n_head} {config.kv_heads} {config.head_size}".encode())
    for name, shape in weight_shapes(config):
        digest.update(f"{name} {shape}".encode())
        digest.update((np.array(samples[name]) + np.float32(0)).astype("<f4").tobytes())  # no -0
    return digest.hexdigest()


def warn_of_another_base(adapter: Adapter, model: GPT | Checkpoint) -> None:
    """Say so (`MLXGPTWarning`) if `adapter` was made for other weights than those of `model`."""
    if adapter.base_fingerprint is None or adapter.base_fingerprint == base_fingerprint(model):
        return
    base = f"'{adapter.base}'" if adapter.base else "another model"
    warnings.warn(
        f"{adapter.source} was made for {base}, whose weights differ from these: fine if they are "
        "the same model in another precision",
        MLXGPTWarning,
        stacklevel=3,
    )


def _of_network(model: GPT) -> Iterator[Stored]:
    modules = dict(model.named_modules())
    for name, _ in weight_shapes(model.config):
        path, _, part = name.rpartition(".")
        module = modules[path]
        if part == "weight" and isinstance(module, nn.QuantizedLinear | nn.QuantizedEmbedding):
            how = Quantization(bits=module.bits, group_size=module.group_size, mode=module.mode)
            yield name, {part: module[part] for part in how.parts}, how
        else:
            yield name, {part: module[part]}, None


def _of_files(checkpoint: Checkpoint) -> Iterator[Stored]:
    weights = checkpoint.weights()
    for name, array in weights:
        path, _, part = name.rpartition(".")
        how = checkpoint.quantization.get(path) if part == "weight" else None
        more = () if how is None else how.parts[1:]
        yield name, {part: array} | {other: next(weights)[1] for other in more}, how


def _sample(parts: Mapping[str, mx.array], how: Quantization | None) -> mx.array:
    first = next(iter(parts.values()))
    if first.ndim == 1:
        return first[_spread(first.size, _IN_A_VECTOR)].astype(mx.bfloat16).astype(mx.float32)
    index = _spread(first.shape[0], _ROWS)
    rows = {part: array[index] for part, array in parts.items()}
    whole = rows["weight"] if how is None else how.dequantize(rows, mx.float32)
    share = np.arange(1, _ROWS * _IN_A_ROW + 1) * _GOLDEN % 1
    columns = (share * whole.shape[1]).astype(np.int32).reshape(_ROWS, _IN_A_ROW)
    return mx.take_along_axis(whole.astype(mx.float32), mx.array(columns), axis=1)


def _spread(size: int, count: int) -> mx.array:
    """Return `count` numbers below `size`, at equal distances; several times the same in a few."""
    return mx.array((2 * np.arange(count) + 1) * size // (2 * count))
