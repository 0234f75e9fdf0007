"""A Hugging Face model directory as a `Checkpoint`."""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.hf.config import from_hf, stop_ids
from mlxgpt.checkpoint.hf.weight_files import read_weights
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.model import GPTConfig, Quantization
from mlxgpt.text import Tokenizer


class HFDirectory:
    """One directory; its small files are read when they are asked for, and once."""

    format = "safetensors"

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _raw(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    @cached_property
    def _config(self) -> GPTConfig:
        return from_hf(self._raw, str(self.path / "config.json"))

    @property
    def family(self) -> str:
        return str(self._raw.get("model_type"))

    @property
    def config(self) -> GPTConfig:
        return self._config

    @property
    def quantization(self) -> Mapping[str, Quantization]:
        return {}

    @property
    def stop_ids(self) -> frozenset[int]:
        ids: set[int] = set()
        for name in ("config.json", "generation_config.json"):
            file = self.path / name
            if name == "config.json" or os.path.lexists(file):
                ids |= stop_ids(read_json(file), str(file))
        return frozenset(ids)

    @property
    def chat_template(self) -> str | None:
        return None

    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path)

    def tensors(self) -> Mapping[str, StoredTensor]:
        raise NotImplementedError

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        return iter(read_weights(self.path, self.config).items())
