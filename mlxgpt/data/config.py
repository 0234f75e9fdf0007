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

    bpe_dropout: float = 0.0
    """How likely each merge of the tokenizer is left out of the training text, from 0 to 1, drawn
    anew for each window. Validation has none."""

    stream: bool | None = None
    """Encode each training window afresh from the text, instead of once and for all; None: if
    there is BPE-dropout, which needs it."""

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
        require(
            0.0 <= self.bpe_dropout <= 1.0,  # False for nan, too
            f"'bpe_dropout' must be between 0 and 1, got {self.bpe_dropout}",
        )
        require(
            self.stream is not False or self.bpe_dropout == 0,
            f"'stream' is false, but 'bpe_dropout' is {self.bpe_dropout}: what is encoded once has "
            "the same ids in every epoch; leave --no-stream out, or set 'bpe_dropout' to 0",
        )

    @property
    def streams(self) -> bool:
        """`stream`, decided."""
        return self.bpe_dropout > 0 if self.stream is None else self.stream
