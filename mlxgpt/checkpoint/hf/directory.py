"""A Hugging Face model directory as a `Checkpoint`."""

import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.checkpoint.checkpoint import StoredTensor
from mlxgpt.checkpoint.hf.chat_template import read_chat_template
from mlxgpt.checkpoint.hf.config_reading import from_hf, stop_ids
from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.checkpoint.hf.quantization_settings import QuantizationSettings, read_settings
from mlxgpt.checkpoint.hf.stored_tensors import Headers, quantized_modules
from mlxgpt.checkpoint.hf.unfinished import refuse_placeholder
from mlxgpt.checkpoint.hf.weight_files import read_headers
from mlxgpt.checkpoint.hf.weight_stream import read_weights
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.model import GPTConfig, Quantization
from mlxgpt.text import Tokenizer

_CONFIG, _GENERATION = "config.json", "generation_config.json"


class HFDirectory:
    """One directory; its files are looked at when they are asked for, and once."""

    format = "safetensors"

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def family(self) -> str:
        return str(self._raw.get("model_type"))

    @property
    def config(self) -> GPTConfig:
        return self._config

    @property
    def quantization(self) -> Mapping[str, Quantization]:
        return self._quantization

    @property
    def stop_ids(self) -> frozenset[int]:
        ids = stop_ids(self._raw, str(self.path / _CONFIG))
        file = self.path / _GENERATION
        if os.path.lexists(file):
            refuse_placeholder(file)
            if not _is_null(file):
                ids |= stop_ids(read_json(file), str(file))
        return frozenset(ids)

    @property
    def chat_template(self) -> str | None:
        return read_chat_template(self.path)

    def tokenizer(self) -> Tokenizer:
        refuse_placeholder(self.path / "tokenizer.json")
        return Tokenizer.load(self.path)

    def tensors(self) -> Mapping[str, StoredTensor]:
        return {
            name: StoredTensor(info.dtype, info.shape, info.nbytes)
            for name, (_, info) in self._headers.items()
        }

    def weights(self) -> Iterator[tuple[str, mx.array]]:
        return read_weights(self.path, self.config, self.quantization, self._headers)

    @cached_property
    def _raw(self) -> dict[str, Any]:
        refuse_placeholder(self.path / _CONFIG)
        return read_json(self.path / _CONFIG)

    @cached_property
    def _config(self) -> GPTConfig:
        return from_hf(self._raw, str(self.path / _CONFIG))

    @cached_property
    def _headers(self) -> Headers:
        return read_headers(self.path)

    @cached_property
    def _settings(self) -> QuantizationSettings | None:
        return read_settings(ConfigValues(self._raw, str(self.path / _CONFIG)))

    @cached_property
    def _quantization(self) -> Mapping[str, Quantization]:
        if self._settings is None:
            return {}
        return quantized_modules(self._settings, self.config, self._headers, self.path)


def _is_null(file: Path) -> bool:
    return (
        os.path.isfile(file) and file.stat().st_size < 10 and file.read_bytes().strip() == b"null"
    )
