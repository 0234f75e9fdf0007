"""Weights of a few bits: which modules of a network are quantized, and how."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import mlx.core as mx
import mlx.nn as nn

from mlxgpt.config import require

_MODES = {  # mode -> (bits, group sizes) that MLX has
    "affine": ((2, 3, 4, 5, 6, 8), (32, 64, 128)),
    "mxfp4": ((4,), (32,)),
    "mxfp8": ((8,), (32,)),
    "nvfp4": ((4,), (16,)),
}


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How `mx.quantize` packed a matrix: numbers of `bits` in groups that share a scale.

    Raises `ConfigError` for a combination that MLX does not have.
    """

    bits: int
    group_size: int
    mode: str = "affine"

    def __post_init__(self) -> None:
        require(
            self.mode in _MODES,
            f"quantization mode {self.mode!r} is not known; known: {', '.join(_MODES)}",
        )
        bits, sizes = _MODES[self.mode]
        require(
            self.bits in bits and self.group_size in sizes,
            f"MLX does not quantize to {self.bits} bits in groups of {self.group_size} (mode "
            f"{self.mode}); bits: {', '.join(map(str, bits))}, groups: "
            f"{', '.join(map(str, sizes))}",
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the arrays of one quantized matrix."""
        biased = self.mode == "affine"
        return ("weight", "scales", "biases") if biased else ("weight", "scales")

    def shapes(self, rows: int, columns: int) -> dict[str, tuple[int, int]]:
        """Return part -> its shape, for a matrix (rows, columns). Raises `ConfigError` if the
        columns do not come out even."""
        require(
            columns % self.group_size == 0,
            f"{columns} columns are no multiple of the group size {self.group_size}",
        )
        groups = rows, columns // self.group_size
        packed = rows, columns * self.bits // 32
        return {part: packed if part == "weight" else groups for part in self.parts}

    def quantize(self, w: mx.array) -> dict[str, mx.array]:
        """Return part -> array for a matrix."""
        arrays = mx.quantize(w, group_size=self.group_size, bits=self.bits, mode=self.mode)
        return dict(zip(self.parts, arrays, strict=True))

    def dequantize(self, parts: Mapping[str, mx.array], dtype: mx.Dtype) -> mx.array:
        """Return the matrix that the parts stand for."""
        return mx.dequantize(
            parts["weight"],
            parts["scales"],
            parts.get("biases"),
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            dtype=dtype,
        )


def quantize_modules(network: nn.Module, settings: Mapping[str, Quantization]) -> None:
    """Put quantized modules in the place of those that `settings` names by their path.

    Their arrays are whatever comes out of the old ones; a checkpoint fills them. MLX is lazy, so
    nothing is computed if they are replaced before they are looked at.
    """
    left = set(settings)

    def how(path: str, module: nn.Module) -> bool | dict[str, int | str]:
        if path not in settings or not isinstance(module, nn.Linear | nn.Embedding):
            return False
        left.discard(path)
        return asdict(settings[path])

    nn.quantize(network, class_predicate=how)
    require(not left, f"there is no matrix to quantize called {', '.join(sorted(left)[:3])}")
