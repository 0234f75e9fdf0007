"""Types of the tensors in a file -> the half precision in which a GPU should compute with them."""

from collections.abc import Iterable
from typing import Literal

from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.gguf.blocks import UNPACKED

Half = Literal["float16", "bfloat16"]


def half_precision(tensors: Iterable[StoredTensor]) -> Half | None:
    """Return the half precision of a model; None if no number of it is in one.

    One vector of gains in float32, as GGUF files have them, would make everything after it float32,
    and each product with a half-precision matrix would first make a float32 copy of it. A GGUF file
    that is quantized throughout has no such matrix, and stays exact in float32.
    """
    types = {tensor.dtype for tensor in tensors}
    if "BF16" in types:
        return "bfloat16"
    return "float16" if types & {"F16", *UNPACKED} else None


def becomes_half(name: str, dimensions: int, packed: bool) -> bool:
    """Return whether a float32 array takes the half precision of its model: vectors, and what
    belongs to a quantized matrix; a matrix of its own keeps what it is stored in."""
    return dimensions == 1 or (packed and name.endswith((".scales", ".biases")))
