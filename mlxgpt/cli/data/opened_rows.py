"""A file of rows, a base and settings -> rows as training on that base would see them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint import load_tokenizer, open_checkpoint
from mlxgpt.checkpoint.chosen_template import chosen_template
from mlxgpt.config import build
from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.encoder import RowEncoder
from mlxgpt.data.sft.example_set import ExampleSet, load_sets
from mlxgpt.data.sft.row_folder import find_files


class OpenedRows:
    """A base of which everything but the weights has been read, and the rows to show."""

    def __init__(self, rows: str, base: str, settings: Mapping[str, Any]) -> None:
        """`settings` are fields of `SFTDataConfig`; None: not given.

        All rows of the file are for training here, none is held back, and what stands beside it to
        validate on is left alone. Raises `ConfigError`, `DataError`,
        `CheckpointError` and `TokenizerError` as the parts do.
        """
        given = {name: value for name, value in settings.items() if value is not None}
        self.file: Path = find_files(rows)[0]
        files = {"train": str(self.file), "val_fraction": 0.0}
        self.config = build(SFTDataConfig, {**files, **given}, "data")
        checkpoint = open_checkpoint(base)
        self.tokenizer = load_tokenizer(checkpoint)
        self.chosen = chosen_template(checkpoint, self.tokenizer, self.config.template)
        self.max_length = self.config.length_for(checkpoint.config.context)
        template = self.chosen.template
        self.encoder = RowEncoder(self.tokenizer, template, self.config, self.max_length)

    def load(self, seed: int, progress: Callable[[int, int], None] | None = None) -> ExampleSet:
        """Read and encode all rows."""
        return load_sets(self.config, self.encoder, seed, progress)[0]
