"""A GGUF file as a `Checkpoint`: network, weights, tokenizer and chat template in one file."""

import logging
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path

import mlx.core as mx
import numpy as np

from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.finite import all_finite
from mlxgpt.checkpoint.gguf.blocks import PACKED, PLAIN, UNPACKED, is_packed, read_blocks
from mlxgpt.checkpoint.gguf.config import from_gguf
from mlxgpt.checkpoint.gguf.header import Header, TensorPlace, read_gguf_header
from mlxgpt.checkpoint.gguf.metadata import Metadata
from mlxgpt.checkpoint.gguf.rope_factors import ROPE_FACTORS
from mlxgpt.checkpoint.gguf.tensor_names import (
    from_gguf_rows,
    gguf_name,
    our_name,
    permuted_heads,
)
from mlxgpt.errors import CheckpointError, one_line
from mlxgpt.model import GPTConfig, Quantization, weight_shapes
from mlxgpt.text import Tokenizer, tokenizer_from_gguf

log = logging.getLogger(__name__)

_SHOWN = 5
_ENDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
_TURN_ENDS = frozenset(("<|eot_id|>", "<|im_end|>", "<|eom_id|>", "<end_of_turn>"))
"""Control tokens that end a turn, also where the file has no `eot_token_id`."""
_CONTROL = 3


class GGUFFile:
    """One file; its header is read when something is asked for, and once."""

    format = "GGUF"

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _header(self) -> Header:
        return read_gguf_header(self.path)

    @cached_property
    def _metadata(self) -> Metadata:
        metadata = Metadata(self._header.metadata, str(self.path))
        parts = metadata.values.get("split.count", 1)
        if parts not in (0, 1):
            raise CheckpointError(
                f"{self.path} is one of {one_line(str(parts), 20)} parts of a model; join them "
                "first (llama-gguf-split --merge)"
            )
        return metadata

    @cached_property
    def _config(self) -> GPTConfig:
        factors = self._header.tensors.get(ROPE_FACTORS)
        numbers = None if factors is None else self._rope_factors(factors)
        return from_gguf(self._metadata, self._header.tensors, numbers)

    @property
    def family(self) -> str:
        return self._metadata.architecture

    @property
    def config(self) -> GPTConfig:
        return self._config

    @property
    def quantization(self) -> Mapping[str, Quantization]:
        settings = {}
        for tensor, place in self._header.tensors.items():
            name = our_name(tensor)
            if name is not None and is_packed(place.dtype, place.shape):
                settings[name.rpartition(".")[0]] = PACKED[place.dtype]
        return settings

    @property
    def stop_ids(self) -> frozenset[int]:
        ids = {self._metadata.token_id(name) for name in _ENDS}
        values = self._metadata.values
        tokens, types = (values.get(f"tokenizer.ggml.{n}") for n in ("tokens", "token_type"))
        if isinstance(tokens, list) and isinstance(types, list):
            ids |= {
                i
                for i, (token, kind) in enumerate(zip(tokens, types, strict=False))
                if kind == _CONTROL and isinstance(token, str) and token in _TURN_ENDS
            }
        return frozenset(i for i in ids if i is not None)

    @property
    def chat_template(self) -> str | None:
        name = "tokenizer.chat_template"
        return self._metadata.text(name) if self._metadata.has(name) else None

    def tokenizer(self) -> Tokenizer:
        return tokenizer_from_gguf(self._metadata.values, str(self.path))

    def tensors(self) -> Mapping[str, StoredTensor]:
        return {
            name: StoredTensor(place.dtype, place.shape, place.nbytes)
            for name, place in self._header.tensors.items()
        }

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        places = self._checked_places()
        computed = sorted({p.dtype for p in places.values() if p.dtype in UNPACKED})
        if computed:
            log.warning(
                "%s: MLX has nothing like %s; such weights become float16",
                self.path,
                ", ".join(computed),
            )
        return self._read(places)

    def _checked_places(self) -> dict[str, TensorPlace]:
        """Return our name -> tensor, after a look at all names, shapes and types."""
        config, tensors = self.config, self._header.tensors
        missing = (gguf_name(n) for n, _ in weight_shapes(config) if gguf_name(n) not in tensors)
        self._refuse("missing", list(islice(missing, _SHOWN + 1)))
        shapes = dict(weight_shapes(config))  # no more than there are in the file
        names = {our_name(tensor): tensor for tensor in tensors if tensor != ROPE_FACTORS}
        self._refuse(
            "not part of this model",
            sorted(t for t in tensors if t != ROPE_FACTORS and our_name(t) not in shapes),
        )
        places = {name: tensors[names[name]] for name in shapes}
        for name, place in places.items():
            if place.shape != shapes[name]:
                raise CheckpointError(
                    f"{self.path}: {names[name]!r} has shape {list(place.shape)}, the metadata ask "
                    f"for {list(shapes[name])}"
                )
            if place.dtype not in (*PLAIN, *PACKED, *UNPACKED):
                raise CheckpointError(
                    f"{self.path}: {names[name]!r} has type {place.dtype}; expected "
                    f"{', '.join((*PLAIN, *PACKED, *UNPACKED))}"
                )
        return places

    def _read(self, places: Mapping[str, TensorPlace]) -> Iterator[tuple[str, mx.array]]:
        for name, place in places.items():
            parts = read_blocks(place.dtype, place.shape, self._bytes_of(place))
            module, _, last = name.rpartition(".")
            for part in list(parts):
                # Bound to no name here: it would be held until the next one is asked for.
                yield (
                    f"{module}.{part if last == 'weight' else last}",
                    self._in_order(name, parts.pop(part)),
                )

    def _in_order(self, name: str, array: mx.array) -> mx.array:
        """Return a weight or a part of it evaluated, checked, and with its rows as ours stand."""
        heads = permuted_heads(name, self.family, self.config)
        if heads is not None:
            array = mx.contiguous(from_gguf_rows(array, heads))
        mx.eval(array)
        if array.dtype != mx.uint32 and not all_finite(array):
            raise CheckpointError(f"{self.path}: {gguf_name(name)!r} holds NaN or infinite numbers")
        return array

    def _bytes_of(self, place: TensorPlace) -> np.ndarray:
        """Return the bytes of one tensor, (nbytes,) uint8."""
        try:
            with self.path.open("rb") as f:
                data = np.fromfile(f, np.uint8, place.nbytes, offset=place.offset)
        except OSError as e:
            raise CheckpointError(f"{self.path} cannot be read: {e.strerror or e}") from e
        if data.size < place.nbytes:
            raise CheckpointError(f"{self.path} became shorter while it was read")
        return data

    def _rope_factors(self, place: TensorPlace) -> np.ndarray:
        if place.dtype != "F32" or len(place.shape) != 1:
            raise CheckpointError(
                f"{self.path}: {ROPE_FACTORS!r} is {place.dtype} of shape {list(place.shape)}; "
                "expected F32 numbers in a row"
            )
        return self._bytes_of(place).view("<f4").astype(np.float64)

    def _refuse(self, what: str, names: list[str]) -> None:
        if names:
            shown = ", ".join(map(repr, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)
            raise CheckpointError(f"{self.path}: {what}: {shown}")
