"""A checkpoint -> a network that is ready to run, one weight after the other.

At no moment more is held than the network's own weights and the tensor that is on its way.
"""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.adapters import Adapter, attach, read_adapter
from mlxgpt.checkpoint.borrowed import BorrowedModel, borrow
from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.checkpoint.opening import open_checkpoint
from mlxgpt.checkpoint.precision import Half, becomes_half, half_precision
from mlxgpt.checkpoint.shape import foreign_shape
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.text import Tokenizer

log = logging.getLogger(__name__)


def load(
    path: str | Path, adapter: str | Path | Adapter | None = None
) -> tuple[GPT | BorrowedModel, Tokenizer]:
    """Load a model: the network, ready to run, and its tokenizer.

    `path` is a run, a model directory, a GGUF file or a model of the Hub. On a CPU device
    half-precision and quantized weights become float32, since MLX computes those tens of times
    faster there; elsewhere they stay as stored. An architecture that is not ours is run by mlx-lm.
    `adapter` is the folder of one, or one that was read, and is attached. Raises `CheckpointError`
    or `TokenizerError` naming the file and what is wrong with it.
    """
    if isinstance(adapter, str | Path):
        adapter = read_adapter(adapter)
    checkpoint = open_checkpoint(path)
    model = load_model(checkpoint)
    if adapter is not None:
        attach(model, adapter)
    return model, load_tokenizer(checkpoint)


def load_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    """Load the tokenizer of a model, which may not have more ids than the model."""
    tokenizer, vocab = checkpoint.tokenizer(), _vocab(checkpoint)
    if vocab is not None and tokenizer.vocab_size > vocab:
        raise CheckpointError(
            f"{checkpoint.path}: the tokenizer has {tokenizer.vocab_size} ids, the model only "
            f"{vocab}; they do not belong together"
        )
    return tokenizer


def _vocab(checkpoint: Checkpoint) -> int | None:
    try:
        return checkpoint.config.vocab
    except ForeignArchitecture:
        if checkpoint.format != "safetensors":
            return None
        return foreign_shape(read_json(checkpoint.path / "config.json")).vocab


def load_model(
    source: str | Path | Checkpoint, *, as_stored: bool | None = None
) -> GPT | BorrowedModel:
    """Load the network of a model, without its tokenizer.

    `as_stored` keeps precision and quantization as they are on disk; None: on a GPU. Only float32
    vectors and scales beside half-precision matrices become half precision too.
    """
    checkpoint = open_checkpoint(source) if isinstance(source, str | Path) else source
    if as_stored is None:
        as_stored = mx.default_device().type != mx.DeviceType.cpu
    try:
        config = checkpoint.config
    except ForeignArchitecture:
        return borrow(checkpoint, as_stored=as_stored)
    quantization = checkpoint.quantization
    weights = checkpoint.weights()  # checked before a network of that size is made
    model = GPT(config)
    if as_stored:
        quantize_modules(model, quantization)
        half = half_precision(checkpoint.tensors().values())
        model.set_weights(_in_one_precision(weights, quantization, half))
    else:
        model.set_weights(_in_float32(weights, quantization))
    return model


def plain_weights(checkpoint: Checkpoint, dtype: mx.Dtype | None) -> Iterator[tuple[str, mx.array]]:
    """Yield the weights of `checkpoint` with nothing quantized, in `dtype` (None: as stored, and
    what was quantized in the dtype of its scales)."""
    yield from _plain(checkpoint.weights(), checkpoint.quantization, dtype, dtype)


def _in_one_precision(
    weights: Iterator[tuple[str, mx.array]],
    quantization: Mapping[str, Quantization],
    half: Half | None,
) -> dict[str, mx.array]:
    result = {}
    for name, array in weights:
        packed = name.rpartition(".")[0] in quantization
        if half and array.dtype == mx.float32 and becomes_half(name, array.ndim, packed):
            array = array.astype(mx.float16 if half == "float16" else mx.bfloat16)
            mx.eval(array)
        result[name] = array
    return result


def _in_float32(
    weights: Iterator[tuple[str, mx.array]], quantization: Mapping[str, Quantization]
) -> dict[str, mx.array]:
    result, changed = {}, bool(quantization)
    for name, array in _plain(weights, quantization, None, mx.float32):
        changed |= array.dtype != mx.float32
        array = array.astype(mx.float32)
        mx.eval(array)
        result[name] = array
    if changed:
        what = "quantized weights are" if quantization else "half precision is"
        log.warning("weights are computed in float32 here: %s slow on a CPU", what)
    return result


def _plain(
    weights: Iterator[tuple[str, mx.array]],
    quantization: Mapping[str, Quantization],
    dtype: mx.Dtype | None,
    unpacked: mx.Dtype | None,
) -> Iterator[tuple[str, mx.array]]:
    """Unpack quantized matrices to `unpacked` (None: the dtype of their scales); the rest becomes
    `dtype` (None: stays as it is)."""
    for name, array in weights:
        module, _, part = name.rpartition(".")
        how = quantization.get(module) if part == "weight" else None
        if how is None:
            yield name, array if dtype is None else array.astype(dtype)
            continue
        parts = {"weight": array}
        for part in how.parts[1:]:
            following, parts[part] = next(weights)
            assert following == f"{module}.{part}", following
        scales = parts["scales"].dtype
        target = unpacked or (scales if mx.issubdtype(scales, mx.floating) else mx.bfloat16)
        whole = how.dequantize(parts, target)
        mx.eval(whole)
        yield name, whole
