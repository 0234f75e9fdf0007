"""What files say of their tensors -> parameters, bytes on disk and in memory; reads no weight."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.gguf.blocks import PACKED, UNPACKED
from mlxgpt.checkpoint.precision import becomes_half, half_precision
from mlxgpt.model import GPTConfig, Quantization, non_embedding, num_parameters

_FLOATS = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_NUMBER_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_EMBEDDING = re.compile(
    r"(^|\.)(embed_(tokens|in|out)|embeddings|tok_embeddings|wte|lm_head|token_embd)\.|^output\."
)
_DERIVED = re.compile(r"rotary_emb\.inv_freq$")


@dataclass(frozen=True)
class Footprint:
    """How large the weights of a model are."""

    parameters: int
    """A tied embedding counts once."""
    outside_embedding: int
    """Parameters but for the embedding and the output head."""
    dtype: str
    """Of the numbers that are not quantized: the one with the most bytes."""
    stored_types: dict[str, int]
    """Type in the file's own words -> bytes on disk, the most first."""
    memory_bytes: int
    """Bytes that they take once loaded, in stored precision."""

    @property
    def stored_bytes(self) -> int:
        """Bytes of all tensors on disk."""
        return sum(self.stored_types.values())

    @property
    def float32_bytes(self) -> int:
        """Bytes that they take in float32, as they are loaded on a CPU."""
        return 4 * self.parameters

    @property
    def number_bytes(self) -> int:
        """Bytes of one number of `dtype`."""
        return _NUMBER_BYTES[self.dtype]


def footprint(
    tensors: Mapping[str, StoredTensor],
    quantization: Mapping[str, Quantization],
    config: GPTConfig | None,
) -> Footprint:
    """Return how large the weights are, from what their files say of them.

    `config` is None for an architecture that is not ours; then parameters are counted in the files,
    where `quantization` has the file's own names.
    """
    kept = {name: t for name, t in tensors.items() if not _DERIVED.search(name)}
    if config is not None and config.tie_embeddings:  # a second copy of the embedding is dropped
        kept = {name: t for name, t in kept.items() if not name.startswith("lm_head.")}
    if config is not None:
        parameters, outside = num_parameters(config), non_embedding(config)
    else:
        counts = {name: _numbers(name, tensor, kept, quantization) for name, tensor in kept.items()}
        parameters = sum(counts.values())
        outside = sum(n for name, n in counts.items() if not _EMBEDDING.search(name))
    half = half_precision(tensors.values()) if config is not None else None
    types: Counter[str] = Counter()
    for tensor in tensors.values():
        types[tensor.dtype] += tensor.nbytes
    return Footprint(
        parameters=parameters,
        outside_embedding=outside,
        dtype=_dtype(kept, quantization),
        stored_types=dict(types.most_common()),
        memory_bytes=sum(
            _loaded(name, tensor, half, quantization) for name, tensor in kept.items()
        ),
    )


def _numbers(
    name: str,
    tensor: StoredTensor,
    tensors: Mapping[str, StoredTensor],
    quantization: Mapping[str, Quantization],
) -> int:
    """Return how many parameters a tensor holds; a quantized matrix is counted by its scales."""
    module, _, part = name.rpartition(".")
    how = quantization.get(module)
    if how is None or f"{module}.scales" not in tensors or part not in how.parts:
        return prod(tensor.shape)
    return prod(tensors[f"{module}.scales"].shape) * how.group_size if part == "weight" else 0


def _dtype(tensors: Mapping[str, StoredTensor], quantization: Mapping[str, Quantization]) -> str:
    plain: Counter[str] = Counter()
    scales: Counter[str] = Counter()
    for name, tensor in tensors.items():
        dtype = "float16" if tensor.dtype in UNPACKED else _FLOATS.get(tensor.dtype)
        if dtype is not None:
            part_of_matrix = name.rpartition(".")[0] in quantization
            (scales if part_of_matrix else plain)[dtype] += _resident(tensor)
    most = (plain or scales).most_common(1)
    return most[0][0] if most else "float32"


def _resident(tensor: StoredTensor) -> int:
    """Return the bytes of a tensor once it is loaded: only types of GGUF change."""
    count = prod(tensor.shape)
    if tensor.dtype in UNPACKED:
        return 2 * count
    if tensor.dtype in PACKED:  # a scale and a bias in float32 for each group
        how = PACKED[tensor.dtype]
        return count * how.bits // 8 + count // how.group_size * 8
    return tensor.nbytes


def _loaded(
    name: str,
    tensor: StoredTensor,
    half: str | None,
    quantization: Mapping[str, Quantization],
) -> int:
    packed = name.rpartition(".")[0] in quantization
    if half and tensor.dtype in PACKED:  # scales and biases become half precision too
        groups = prod(tensor.shape) // PACKED[tensor.dtype].group_size
        return _resident(tensor) - groups * 4
    if half and tensor.dtype == "F32" and becomes_half(name, len(tensor.shape), packed):
        return tensor.nbytes // 2
    return _resident(tensor)
