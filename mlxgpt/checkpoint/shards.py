"""A stream of weights -> `model.safetensors`, or shards of it and their index.

At most one shard is held in memory, so a model may be larger than that.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.hf.weight_files import INDEX, WEIGHTS
from mlxgpt.checkpoint.json_file import write_json
from mlxgpt.checkpoint.safetensors import write_tensors

SHARD_BYTES = 4 * 2**30


@dataclass
class Written:
    """What came of a stream of weights."""

    sizes: Counter[mx.Dtype] = field(default_factory=Counter)
    """Bytes of each type of number."""

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(self.sizes.values())

    @property
    def dtype(self) -> str:
        """Name of the floating type that most bytes are of: the precision of the model."""
        floats = [d for d in self.sizes if mx.issubdtype(d, mx.floating)]
        most = max(floats, key=lambda d: self.sizes[d], default=mx.bfloat16)
        return str(most).removeprefix("mlx.core.")


def write_weights(
    directory: Path, weights: Iterator[tuple[str, mx.array]], shard_bytes: int = SHARD_BYTES
) -> Written:
    """Write `weights` and their index into `directory`, a new one.

    A single file is called `model.safetensors`, several `model-00001-of-0000N.safetensors`, each of
    at most `shard_bytes` unless one array is larger.
    """
    names: list[list[str]] = []
    part: dict[str, mx.array] = {}
    size, written = 0, Written()

    def close() -> None:
        write_tensors(directory / f"shard-{len(names):05}.safetensors", part)
        names.append(list(part))
        part.clear()

    for name, array in weights:
        if part and size + array.nbytes > shard_bytes:
            close()
            size = 0
        part[name] = array
        size += array.nbytes
        written.sizes[array.dtype] += array.nbytes
    close()
    where = {}
    for i, inside in enumerate(names):
        final = f"model-{i + 1:05}-of-{len(names):05}.safetensors" if len(names) > 1 else WEIGHTS
        (directory / f"shard-{i:05}.safetensors").rename(directory / final)
        where |= dict.fromkeys(inside, final)
    index = {"metadata": {"total_size": written.nbytes}, "weight_map": dict(sorted(where.items()))}
    write_json(directory / INDEX, index)
    return written
