"""The tensors of an adapter's file, checked one by one -> low-rank changes by module path."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.adapters.adapter import LowRank
from mlxgpt.checkpoint.safetensors import read_header, read_tensors
from mlxgpt.errors import CheckpointError

_FLOATS = ("F32", "F16", "BF16")
_SHOWN = 3


def finite_tensors(file: Path) -> dict[str, mx.array]:
    """Read a file of floating point numbers. Raises `CheckpointError` naming what is no number."""
    for name, info in read_header(file).items():
        if info.dtype not in _FLOATS:
            raise CheckpointError(
                f"{file}: {name!r} has dtype {info.dtype}; expected {', '.join(_FLOATS)}"
            )
    tensors = read_tensors(file)
    if not tensors:
        raise CheckpointError(f"{file} holds no tensors")
    for name, tensor in tensors.items():
        if not mx.isfinite(tensor).all().item():
            raise CheckpointError(f"{file}: {name!r} holds NaN or infinite numbers")
    return tensors


def low_rank(
    parts: Mapping[str, mx.array], *, scale: float, rank: int, dora: bool, where: str
) -> LowRank:
    """Put the arrays `a`, `b` and, for DoRA, `m` of one module together.

    Raises `CheckpointError` naming `where` for one that is missing, one too many, or another rank.
    """
    expected = ("a", "b", "m") if dora else ("a", "b")
    for part in expected:
        if part not in parts:
            raise CheckpointError(f"{where} lacks its part {part!r}")
    if len(parts) > len(expected):
        raise CheckpointError(f"{where} has a magnitude (DoRA), the settings say LoRA")
    a, b, m = parts["a"], parts["b"], parts.get("m")
    if a.ndim != 2 or b.ndim != 2 or (m is not None and m.ndim != 1):
        shapes = ", ".join(f"{part} {list(array.shape)}" for part, array in parts.items())
        raise CheckpointError(f"{where} is no pair of matrices: {shapes}")
    if a.shape[1] != rank or b.shape[0] != rank:
        raise CheckpointError(
            f"{where} has rank {a.shape[1]} in a and {b.shape[0]} in b, the settings say {rank}"
        )
    return LowRank(a=a, b=b, scale=scale, m=m)


def listed(names: Iterable[str]) -> str:
    """Return the first of some names, for a message."""
    ordered = sorted(names)
    return ", ".join(map(repr, ordered[:_SHOWN])) + ", ..." * (len(ordered) > _SHOWN)
