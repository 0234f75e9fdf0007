"""Which rows to fine-tune on, how they become ids, and how they are drawn: the settings."""

from dataclasses import dataclass
from typing import Literal

from mlxgpt.config import require

PackMode = Literal["none", "sequence", "sample", "bucket"]
Overflow = Literal["truncate-left", "truncate-right", "drop"]
Turns = Literal["all", "last"]
Packing = Literal["best-fit", "concatenate"]

_LONGEST = 2048
"""Tokens of an example at most, where nothing else is said and the base can see more."""


@dataclass(frozen=True, kw_only=True)
class SFTDataConfig:
    """From files to examples, and from examples to rows of a batch."""

    train: str
    """A `.jsonl` or `.json` file (also `.gz`, `.zst`), or a folder with `train.jsonl` in it."""
    valid: str | None = None
    """A file to validate on; None: `valid.jsonl` of the folder, else rows that are held back."""
    val_fraction: float | None = None
    """Share of the rows held back for validation; 0: none. None: 0.05, where no file is there."""
    template: str = "auto"
    """`auto`: the chat template of the base, else plain text; or `plain`, the name of a built-in
    template, or a file."""
    mask_prompt: bool = True
    """Learn answers only; false: learn all of a row but its first token."""
    turns: Turns = "all"
    """Learn all turns of the assistant, or the last one only."""
    max_length: int | None = None
    """Tokens of an example at most; None: what the base can see, up to 2048."""
    overflow: Overflow = "truncate-right"
    """What happens to a longer example: its end is cut off, its beginning is, or it is left out."""
    pack_mode: PackMode = "none"
    """How examples are drawn, and put into rows."""
    length_bucket: int | None = None
    """Number of bins of equal width for `bucket`; None: 4."""
    packing: Packing | None = None
    """For `sequence`. `best-fit` (None): whole examples, kept apart; `concatenate`: all of them one
    after the other, cut at `max_length`, as is usual in pre-training: they see each other."""
    tokens_per_batch: int | None = None
    """Places in a micro-batch at most, padding included: rows of a step are cut into as many
    micro-batches as that takes; None: `micro_batch_size` rows each."""
    bpe_dropout: float = 0.0
    """How likely each merge of the tokenizer is left out of a training example, from 0 to 1, anew
    whenever it is drawn. Validation has none."""

    def __post_init__(self) -> None:
        require(bool(self.train.strip()), "'data.train' must name a file or a folder")
        require(
            self.val_fraction is None or 0 <= self.val_fraction < 1,
            f"'data.val_fraction' must be from 0 to below 1; got {self.val_fraction}",
        )
        require(
            self.valid is None or self.val_fraction is None,
            "'data.val_fraction' has no effect beside 'data.valid'; leave one of them out",
        )
        for name, least in (("max_length", 2), ("length_bucket", 1), ("tokens_per_batch", 1)):
            value = getattr(self, name)
            require(
                value is None or value >= least,
                f"'data.{name}' must be at least {least}; got {value}",
            )
        require(
            self.length_bucket is None or self.pack_mode == "bucket",
            f"'data.length_bucket' (--length-bucket) is for --pack-mode bucket, and has no effect "
            f"on '{self.pack_mode}'; leave it out",
        )
        require(
            self.packing is None or self.pack_mode == "sequence",
            f"'data.packing' is for --pack-mode sequence, and has no effect on "
            f"'{self.pack_mode}'; leave it out",
        )
        require(
            self.mask_prompt or self.turns == "all",
            "'data.turns' has no effect without masked prompts; leave it, or --no-mask-prompt, out",
        )
        require(
            0 <= self.bpe_dropout <= 1,  # False for nan, too
            f"'data.bpe_dropout' must be between 0 and 1; got {self.bpe_dropout}",
        )

        require(
            self.packing != "concatenate" or self.bpe_dropout == 0,
            "'data.packing' concatenate cuts the examples once for all, so that there can be no "
            "BPE-dropout; leave one of them out",
        )

    def length_for(self, context: int | None) -> int:
        """Return `max_length`, decided for a base that sees `context` tokens; None: any number.

        Raises `ConfigError` if the base does not see so many.
        """
        require(
            self.max_length is None or context is None or self.max_length <= context,
            f"'data.max_length' (--max-length) is {self.max_length}, but the base sees {context} "
            "tokens at most",
        )
        return self.max_length or min(_LONGEST, context or _LONGEST)

    @property
    def num_bins(self) -> int:
        """`length_bucket`, decided."""
        return 4 if self.length_bucket is None else self.length_bucket
