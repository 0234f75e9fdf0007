"""A safetensors file -> arrays, after its header has been checked against the file's size.

`mx.load` maps lazily and trusts the header; the checks here come first, so that a cut or damaged
file is named instead of read. Format: 8 bytes little-endian header length, JSON header, data.
"""

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path

import mlx.core as mx

from mlxgpt.errors import CheckpointError

_DTYPES = {"F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16}
_SIZES = {"F32": 4, "F16": 2, "BF16": 2, "U8": 1, "I8": 1, "BOOL": 1, "U16": 2, "I16": 2}
_SIZES |= {"U32": 4, "I32": 4, "F64": 8, "U64": 8, "I64": 8}
_SIZES |= {"F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1}  # MLX has none of these: named, not read
_MAX_HEADER = 100_000_000


@dataclass(frozen=True)
class TensorInfo:
    """What the header says of one tensor."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of its data."""
        return prod(self.shape) * _SIZES[self.dtype]


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Return name -> `TensorInfo`. Raises `CheckpointError` if header and file do not agree."""
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            prefix = f.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{path} is cut off: {size} bytes hold no header")
            (length,) = struct.unpack("<Q", prefix)
            if length > min(size - 8, _MAX_HEADER):
                raise CheckpointError(
                    f"{path} is cut off or not a safetensors file: a header of {length} bytes "
                    f"in a file of {size}"
                )
            header = json.loads(f.read(length))
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} is missing") from e
    except OSError as e:
        raise CheckpointError(f"{path} cannot be read: {e}") from e
    except (ValueError, RecursionError) as e:
        raise CheckpointError(f"{path}: the header is not JSON: {e}") from e
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is not a JSON object")
    header.pop("__metadata__", None)
    infos, spans = {}, []
    for name, entry in header.items():
        try:
            dtype, shape = entry["dtype"], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            # MLX counts with 32 bits: 2**31 becomes negative, 2**32 becomes 0.
            if not all(type(n) is int and 0 <= n < 2**31 for n in shape):
                raise ValueError("odd shape")
            if not all(type(n) is int and 0 <= n < 2**63 for n in (begin, end)):
                raise ValueError("odd offsets")
            if end - begin != TensorInfo(dtype, shape).nbytes:
                raise ValueError("shape and offsets disagree")
        except (TypeError, KeyError, ValueError) as e:
            raise CheckpointError(
                f"{path}: the header entry of {name!r} is damaged: {ascii(entry)[:120]}"
            ) from e
        infos[name] = TensorInfo(dtype, shape)
        spans.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise CheckpointError(f"{path}: {name!r} starts at byte {begin}, expected {position}")
        position = end
    if 8 + length + position > size:
        raise CheckpointError(
            f"{path} is cut off: {size} bytes, the header describes {8 + length + position}; copy "
            "or download it again"
        )
    if 8 + length + position < size:
        raise CheckpointError(
            f"{path} has trailing data: {size} bytes, the header describes {8 + length + position}"
        )
    return infos


def read_tensors(path: Path) -> dict[str, mx.array]:
    """Return all tensors of a checked file, read into memory (not mapped any more)."""
    for name, info in read_header(path).items():
        if info.dtype not in _DTYPES and info.dtype not in ("U32", "U64", "I32", "I64"):
            raise CheckpointError(
                f"{path}: {name!r} has dtype {info.dtype}, which is not supported"
            )
    tensors = map_tensors(path)
    try:
        mx.eval(tensors)
    except RuntimeError as e:
        raise CheckpointError(f"{path} cannot be read: {' '.join(str(e).split())}") from e
    return tensors


def map_tensors(path: Path) -> dict[str, mx.array]:
    """Return all tensors of a checked file, each of which is read when it is evaluated."""
    try:
        tensors = mx.load(str(path))
    except (RuntimeError, ValueError) as e:  # MLX's JSON is stricter than Python's
        raise CheckpointError(f"{path} cannot be read: {' '.join(str(e).split())}") from e
    assert isinstance(tensors, dict)
    return tensors


def write_tensors(path: Path, tensors: dict[str, mx.array]) -> None:
    """Write `tensors`; `path` must end in .safetensors. Evaluates them first: they may still be
    on their way from that very file."""
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors, metadata={"format": "mlx"})
