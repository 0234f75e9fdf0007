"""The bytes of one tensor in a GGUF file -> MLX arrays, exactly where MLX has such a type.

ggml packs a row in blocks of 32 numbers with a scale. Three of its types are MLX's affine
quantization in groups of 32, in another order of bits. `mx.load` reads them too, and is the twin in
the tests; it is not used here, since it opens the file for writing, trusts the header, rounds
bfloat16 to float16, and leaves out whatever follows a tensor of a type it does not know.
"""

import mlx.core as mx
import numpy as np

from mlxgpt.model import Quantization

PLAIN = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype("<u2")}
"""Types with one number after the other."""
PACKED = {
    "Q4_0": Quantization(bits=4, group_size=32),
    "Q4_1": Quantization(bits=4, group_size=32),
    "Q8_0": Quantization(bits=8, group_size=32),
}
"""Types that stay quantized."""
UNPACKED = (
    "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4",
)  # fmt: skip
"""Types that MLX has nothing for: they are computed by the `gguf` package and kept as float16."""


def is_packed(dtype: str, shape: tuple[int, ...]) -> bool:
    """Return whether such a tensor stays quantized: a matrix of the right type."""
    return dtype in PACKED and len(shape) == 2


def read_blocks(dtype: str, shape: tuple[int, ...], data: np.ndarray) -> dict[str, mx.array]:
    """Return part -> array for the bytes `data` of a tensor.

    One `weight` (rows, columns); of a matrix that stays quantized `weight`, `scales` and `biases`,
    the last two in float32: they are products, and half precision would not hold them. A vector is
    always float32.
    """
    if is_packed(dtype, shape):
        return _packed(dtype, shape, data)
    if dtype == "BF16":
        weight = mx.array(data.view("<u2").reshape(shape)).view(mx.bfloat16)
    elif dtype in PLAIN:
        weight = mx.array(data.view(PLAIN[dtype]).reshape(shape))
    else:
        weight = mx.array(_computed(dtype, data).reshape(shape).astype(np.float16))
    return {"weight": weight.astype(mx.float32) if len(shape) == 1 else weight}


def _packed(dtype: str, shape: tuple[int, ...], data: np.ndarray) -> dict[str, mx.array]:
    rows, columns = shape
    groups = columns // 32
    blocks = data.reshape(rows * groups, -1)
    scales = _halves(blocks, 0)
    if dtype == "Q8_0":
        # The signed number q is here the unsigned one q + 128.
        numbers, biases = blocks[:, 2:] ^ np.uint8(0x80), -128 * scales
    elif dtype == "Q4_0":
        numbers, biases = _nibbles(blocks[:, 2:]), -8 * scales
    else:
        numbers, biases = _nibbles(blocks[:, 4:]), _halves(blocks, 2)
    words = np.ascontiguousarray(numbers).view("<u4")
    return {
        "weight": mx.array(words.reshape(rows, -1)),
        "scales": mx.array(scales.reshape(rows, groups)),
        "biases": mx.array(biases.reshape(rows, groups)),
    }


def _halves(blocks: np.ndarray, at: int) -> np.ndarray:
    """Return the float16 at byte `at` of each block, as float32."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0].astype(np.float32)


def _nibbles(quants: np.ndarray) -> np.ndarray:
    """Return 16 bytes a block, the numbers in order, the first in the lower half of its byte.

    In the file byte i of 16 holds the numbers i (lower half) and i + 16.
    """
    packed = np.empty_like(quants)
    low, high = quants & np.uint8(0x0F), quants >> np.uint8(4)
    packed[:, :8] = low[:, 0::2] | low[:, 1::2] << np.uint8(4)
    packed[:, 8:] = high[:, 0::2] | high[:, 1::2] << np.uint8(4)
    return packed


def _computed(dtype: str, data: np.ndarray) -> np.ndarray:
    """Return the numbers of a type that MLX does not have, float32 and flat."""
    from gguf import GGMLQuantizationType, quants  # 80 ms, and most files do without

    return quants.dequantize(data, GGMLQuantizationType[dtype]).reshape(-1)
