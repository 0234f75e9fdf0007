"""What a model on disk can be asked, whatever its format: the one thing that loading, `info`,
`export` and `eval` know of files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import mlx.core as mx

from mlxgpt.model import GPTConfig, Quantization
from mlxgpt.text import Tokenizer


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as its file describes it, before it is read."""

    dtype: str
    """Name in the file's own terms: F32, F16, BF16, U32, Q4_0..."""
    shape: tuple[int, ...]
    nbytes: int


class Checkpoint(Protocol):
    """A model on disk: what it says of itself at once, its weights when they are asked for.

    Whatever is read raises `CheckpointError` (the tokenizer: `TokenizerError`) in one line that
    names the file and what is wrong with it.
    """

    @property
    def path(self) -> Path:
        """The directory or file."""
        ...

    @property
    def format(self) -> str:
        """ "safetensors" or "GGUF"."""
        ...

    @property
    def family(self) -> str:
        """The architecture's name in the file, such as "llama" or "qwen3"."""
        ...

    @property
    def config(self) -> GPTConfig:
        """The shape of the network; `ForeignArchitecture` for one that is not ours."""
        ...

    @property
    def quantization(self) -> Mapping[str, Quantization]:
        """Path of each quantized module (`model.layers.0.mlp.up_proj`) -> how; empty for none."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        ...

    @property
    def chat_template(self) -> str | None:
        """The jinja template that turns messages into a text, if there is one."""
        ...

    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer."""
        ...

    def tensors(self) -> Mapping[str, StoredTensor]:
        """Return what is stored under which name (in the file's own names), from headers alone."""
        ...

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        """Return an iterator over (name as in `GPT.weights`, array in stored precision), evaluated.

        Everything cheap is checked by the call, before anything is read: names, shapes, dtypes,
        file sizes; each array for numbers that are not finite when its turn comes. A quantized
        module comes as its `weight`, `scales` and `biases`, one after the other. What was yielded
        is not held here any longer.
        """
        ...
