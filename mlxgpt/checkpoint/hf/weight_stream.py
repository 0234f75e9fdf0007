"""The weight files of a model directory -> its weights, one after the other.

`mx.load` reads nothing but a header; an array is read when it is evaluated. Each is evaluated,
checked and given away before the next, so no more than one is held here.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.finite import all_finite
from mlxgpt.checkpoint.hf.stored_tensors import (
    EMBEDDING,
    HEAD,
    Headers,
    check_stored,
    expected_tensors,
)
from mlxgpt.checkpoint.safetensors import map_tensors
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, Quantization


def read_weights(
    directory: Path, config: GPTConfig, quantization: Mapping[str, Quantization], found: Headers
) -> Iterator[tuple[str, mx.array]]:
    """Return an iterator over the weights, in the precision of the files.

    Names, shapes and dtypes of `found` are checked by the call; the numbers of each array when its
    turn comes. Raises `CheckpointError`.
    """
    check_stored(config, quantization, found, directory)
    unread: dict[str, mx.array] = {}
    for file in {file: None for file, _ in found.values()}:
        unread |= {name: w for name, w in map_tensors(file).items() if name in found}
    names = [name for name, _ in expected_tensors(config, quantization)]

    def take(name: str) -> mx.array:
        array = _read(name, unread, found)
        module, _, part = name.rpartition(".")
        if config.tie_embeddings and module == EMBEDDING and f"{HEAD}.{part}" in unread:
            head = _read(f"{HEAD}.{part}", unread, found)
            if not mx.array_equal(head, array).item():
                raise CheckpointError(
                    f"{directory}: config.json ties the embeddings, but {HEAD}.{part} differs from "
                    f"{name}; set tie_word_embeddings to false or drop {HEAD}.{part}"
                )
        return array

    # No name is bound to an array here: it would keep it until the next one has been read.
    return ((name, take(name)) for name in names)


def _read(name: str, unread: dict[str, mx.array], found: Headers) -> mx.array:
    """Take an array out of `unread`, read it and check its numbers."""
    file = found[name][0]
    array = unread.pop(name)
    try:
        mx.eval(array)
    except RuntimeError as e:  # the file has changed since its header was checked
        raise CheckpointError(f"{file} cannot be read: {' '.join(str(e).split())}") from e
    if mx.issubdtype(array.dtype, mx.floating) and not all_finite(array):
        raise CheckpointError(f"{file}: {name!r} holds NaN or infinite numbers")
    return array
