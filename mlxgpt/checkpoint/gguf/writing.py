"""(GPTConfig, a stream of weights, Tokenizer) -> a GGUF file, which llama.cpp and its kin open.

One weight after the other is converted and written. Where each stands and of which type it is, the
header says, before all of them; its length is known, and it is filled in at the end.
"""

import itertools
import logging
import re
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Literal, cast

import mlx.core as mx
import numpy as np

from mlxgpt.atomic import new_file
from mlxgpt.checkpoint.gguf.block_types import BLOCK_TYPES
from mlxgpt.checkpoint.gguf.rope_factors import ROPE_FACTORS, rope_factors
from mlxgpt.checkpoint.gguf.tensor_names import gguf_name, permuted_heads, to_gguf_rows
from mlxgpt.checkpoint.gguf.writing_metadata import architecture_of, model_metadata
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, weight_shapes
from mlxgpt.text import Tokenizer
from mlxgpt.text.files.gguf_writing import GGUFValue, gguf_tokenizer_metadata

log = logging.getLogger(__name__)

_ALIGNMENT = 32
_BLOCK_BYTES = 1 << 24
"""How much of a weight is converted at once."""
_LARGEST = {"F32": 3.5e38, "BF16": 3.38e38, "F16": 65504, "Q4_0": 8 * 65504, "Q8_0": 127 * 65504}
"""Numbers up to this do not become infinite; the scale of a quantized block is a float16."""
_NUMBERS = {name: number for number, (name, _, _) in BLOCK_TYPES.items()}
_TYPES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
_QUANTIZED = {4: "Q4_0", 8: "Q8_0"}
_FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}
_PHI = re.compile("phi-?3", re.IGNORECASE)
_PHI_TOKENS = ("</s>", "<unk>", "<s>", "<|endoftext|>")


def write_gguf(
    path: str | Path,
    *,
    config: GPTConfig,
    weights: Iterable[tuple[str, mx.array]],
    tokenizer: Tokenizer,
    stop_ids: Collection[int] = (),
    chat_template: str | None = None,
    dtype: mx.Dtype | None = None,
    bits: Literal[4, 8] | None = None,
    name: str,
    license: str | None = None,
    author: str | None = None,
    description: str | None = None,
) -> None:
    """Write a model as one GGUF file, at once or not at all.

    `weights` are those of `GPT.weights`, not quantized, in any order; no more than one of them is
    held. Matrices become `dtype` (float32, float16 or bfloat16; None: as they come), or Q4_0 or
    Q8_0 with `bits`; norms and biases are float32. `stop_ids` end a text; without any it is the
    tokenizer's end-of-text token. `license` is an SPDX name such as "apache-2.0".

    Notes what llama.cpp does otherwise in rare texts, and which matrices could not be quantized.
    Raises `CheckpointError` or `TokenizerError` for what llama.cpp does not have, a weight that is
    missing, not expected, or not finite in the type asked for, and when the disk refuses.
    """
    path = Path(path)
    architecture = architecture_of(config)
    vocabulary = gguf_tokenizer_metadata(tokenizer, vocab_size=config.vocab, stop_ids=stop_ids)
    _check_name(name, vocabulary["tokenizer.ggml.tokens"])
    weights = iter(weights)
    first = next(weights, None)
    kinds = _Kinds(dtype, bits)
    metadata: dict[str, GGUFValue | None] = {
        "general.type": "model",
        "general.name": name,
        "general.author": author,
        "general.license": license,
        "general.description": description,
        "general.file_type": None if first is None else _FILE_TYPES[kinds.usual(first[1].dtype)],
        "general.quantization_version": 2 if bits else None,
        **model_metadata(config, architecture),
        **vocabulary,
        "tokenizer.chat_template": chat_template,
    }
    known = {key: value for key, value in metadata.items() if value is not None}
    shapes = {gguf_name(ours): shape for ours, shape in weight_shapes(config)}
    tensors = _in_the_file(config, architecture, itertools.chain([first] if first else [], weights))
    if config.rope_scaling is not None and config.rope_scaling.rope_type == "llama3":
        factors = rope_factors(config.head_size, config.rope_theta, config.rope_scaling)
        shapes[ROPE_FACTORS] = factors.shape
        tensors = itertools.chain([(ROPE_FACTORS, mx.array(factors, mx.float32))], tensors)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as temporary:
            _write(temporary, architecture, known, shapes, tensors, kinds)
    except OSError as e:
        raise CheckpointError(f"cannot write {path}: {e.strerror or e}") from e
    kinds.say_what_stayed()


@dataclass
class _Kinds:
    """Which type each tensor gets."""

    dtype: mx.Dtype | None
    bits: Literal[4, 8] | None
    stayed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in _TYPES:
            known = ", ".join(str(d).removeprefix("mlx.core.") for d in _TYPES)
            raise CheckpointError(f"a GGUF file is written in {known}; got {self.dtype}")
        if self.bits is not None and self.bits not in _QUANTIZED:
            raise CheckpointError(f"a GGUF file is quantized to 4 or 8 bits; got {self.bits}")

    def usual(self, dtype: mx.Dtype) -> str:
        """Return the type of most matrices, if they come in `dtype`."""
        return _QUANTIZED[self.bits] if self.bits else _TYPES[self.dtype or dtype]

    def of(self, name: str, w: mx.array) -> str:
        """Return the type of one tensor."""
        if w.ndim < 2:
            return "F32"
        if self.bits and w.shape[-1] % 32:
            self.stayed.append(name)
            return _TYPES[self.dtype or w.dtype]
        return self.usual(w.dtype)

    def say_what_stayed(self) -> None:
        """Name the matrices that are not quantized."""
        if self.stayed:
            log.warning(
                "not quantized, since their columns are no multiple of 32: %s%s",
                ", ".join(self.stayed[:3]),
                f" and {len(self.stayed) - 3} more" * (len(self.stayed) > 3),
            )


def _in_the_file(
    config: GPTConfig, architecture: str, weights: Iterable[tuple[str, mx.array]]
) -> Iterator[tuple[str, mx.array]]:
    """Yield each weight under its name in the file and with its rows in the order there."""
    left = dict(weight_shapes(config))
    for name, w in weights:
        shape = left.pop(name, None)
        if shape is None:
            raise CheckpointError(f"{name!r} is not a weight of this model, or came twice")
        if w.shape != shape or w.dtype not in _TYPES:
            raise CheckpointError(
                f"{name!r} has shape {list(w.shape)} and dtype {w.dtype}; expected {list(shape)} "
                "and a floating one"
            )
        heads = permuted_heads(name, architecture, config)
        yield gguf_name(name), w if heads is None else to_gguf_rows(w, heads)
    if left:
        raise CheckpointError(f"missing: {', '.join(map(repr, list(left)[:5]))}")


def _write(
    path: Path,
    architecture: str,
    metadata: Mapping[str, GGUFValue],
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Iterable[tuple[str, mx.array]],
    kinds: _Kinds,
) -> None:
    from gguf import GGUFValueType, GGUFWriter

    writer = GGUFWriter(path, architecture)
    types = {
        bool: GGUFValueType.BOOL,
        int: GGUFValueType.UINT32,
        float: GGUFValueType.FLOAT32,
        str: GGUFValueType.STRING,
        list: GGUFValueType.ARRAY,
    }
    for key, value in metadata.items():
        writer.add_key_value(key, value, types[type(value)])
    for name, shape in shapes.items():  # they are only counted
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 0)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        assert writer.fout is not None
        (file,) = writer.fout
        begin = file.tell()
        length = sum(len(_entry(name, shape, "F32", 0)) for name, shape in shapes.items())
        start = _aligned(begin + length)
        entries, offset = b"", 0
        for name, w in tensors:
            kind = kinds.of(name, w)
            entries += _entry(name, w.shape, kind, offset)
            file.seek(start + offset)
            _write_numbers(file, name, w, kind)
            offset = _aligned(file.tell() - start)
        file.truncate(start + offset)
        file.seek(begin)
        assert len(entries) == length
        file.write(entries)
    finally:
        writer.close()


def _entry(name: str, shape: tuple[int, ...], kind: str, offset: int) -> bytes:
    """Return what the header says of a tensor; its length does not depend on kind and offset."""
    text = name.encode("utf-8")
    numbers = struct.pack(
        f"<I{len(shape)}QIQ", len(shape), *reversed(shape), _NUMBERS[kind], offset
    )
    return struct.pack("<Q", len(text)) + text + numbers


def _write_numbers(file: IO[bytes], name: str, w: mx.array, kind: str) -> None:
    """Convert and write a weight, some rows at a time."""
    mx.eval(w)
    rows = max(1, _BLOCK_BYTES // (4 * prod(w.shape[1:])))
    for begin in range(0, w.shape[0], rows):
        some = w[begin : begin + rows]
        largest = cast(float, mx.abs(some).max().astype(mx.float32).item())
        if not largest <= _LARGEST[kind]:
            raise CheckpointError(
                f"{name!r} holds {largest:g}, which {kind} cannot; choose another dtype"
            )
        _as_numpy(some, kind).tofile(file)


def _as_numpy(w: mx.array, kind: str) -> np.ndarray:
    if kind == "BF16":
        return np.array(w.astype(mx.bfloat16).view(mx.uint16))
    if kind == "F16":
        return np.array(w.astype(mx.float16))
    numbers = np.array(w.astype(mx.float32))
    if kind == "F32":
        return numbers
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    with np.errstate(over="ignore", invalid="ignore"):  # a scale too small for float16 is 0
        return quantize(numbers, GGMLQuantizationType[kind])


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _check_name(name: str, tokens: GGUFValue) -> None:
    """Refuse a name that llama.cpp takes for Phi 3: it then looks for these tokens, or stops."""
    assert isinstance(tokens, list)
    if _PHI.search(name) and not {*_PHI_TOKENS} <= {*tokens}:
        raise CheckpointError(
            f"llama.cpp takes a model called {name!r} for Phi 3 and cannot open it with another "
            "tokenizer; choose a name without that"
        )
