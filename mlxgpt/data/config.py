"""Which text to train on and how to split it: the settings of `data/`."""

from dataclasses import dataclass
from typing import Literal

from mlxgpt.config import require


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the text comes from and which part of it is held back for validation."""

    corpus: str
    """A file, a folder, a glob, or the name of a built-in corpus (`python`, `shakespeare`)."""

    text_field: str = "text"
    """The field of a `.jsonl` line, or the column of a `.parquet` file, that holds the text."""

    split: Literal["auto", "document", "tail"] = "auto"
    """`document`: whole documents, drawn with the seed. `tail`: the end of the corpus.
    `auto`: `document` if there are at least 20 documents, else `tail`."""

    val_fraction: float = 0.1
    """The share of the bytes held back for validation, more than 0 and less than 1."""

    def __post_init__(self) -> None:
        require(bool(self.corpus.strip()), "'corpus' must name a file, a folder or a corpus")
        require(bool(self.text_field), "'text_field' must not be empty")
        require(
            self.split in ("auto", "document", "tail"),
            f"'split' must be one of auto, document, tail; got {self.split!r}",
        )
        require(
            0.0 < self.val_fraction < 1.0,
            f"'val_fraction' must be more than 0 and less than 1, got {self.val_fraction}",
        )
