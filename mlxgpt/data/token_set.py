"""A folder with `train.bin`, `val.bin` and `metadata.json` <-> two token files, checked.

A run that streams its training text has a folder without `train.bin`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxgpt.data.encode import Side
from mlxgpt.data.metadata import METADATA, read_metadata, refused, write_metadata
from mlxgpt.data.token_file import TokenCounts, TokenFile, token_dtype
from mlxgpt.text import Tokenizer

FORMAT = "mlxgpt tokens"
VERSION = 1


@dataclass(frozen=True, eq=False)
class TokenSet:
    """An encoded corpus: what to train on and what to validate on."""

    train: TokenFile
    val: TokenFile
    folder: Path
    reused: bool
    """Whether it was found in the cache rather than made by this call."""

    @classmethod
    def open(cls, folder: Path, tokenizer: Tokenizer, *, reused: bool) -> "TokenSet":
        """Map and check both files; raises as `open_side`."""
        train, val = (open_side(folder, side, tokenizer) for side in ("train", "val"))
        return cls(train, val, folder, reused)


def open_side(folder: Path, side: Side, tokenizer: Tokenizer) -> TokenFile:
    """Map and check one of the files.

    A folder that is damaged, or was written with another tokenizer, is refused with a `DataError`
    and never mended in silence: a disk that alters files is something to know of.
    """
    metadata = read_metadata(folder, "token", FORMAT, VERSION)
    try:
        counts = TokenCounts(**metadata[side])
        dtype, vocab_size = metadata["dtype"], metadata["vocab_size"]
        tokenizer_hash, key = metadata["tokenizer"], metadata["key"]
    except (KeyError, TypeError) as e:
        raise refused(folder, "token", f"its {METADATA} is incomplete ({e})") from e
    if vocab_size != tokenizer.vocab_size or tokenizer_hash != tokenizer.content_hash:
        raise refused(
            folder,
            "token",
            f"it was written with another tokenizer ({vocab_size} ids, this one has "
            f"{tokenizer.vocab_size})",
        )
    if dtype != token_dtype(vocab_size).name:
        raise refused(folder, "token", f"{dtype} is not the type for {vocab_size} ids")
    return TokenFile.open(folder / f"{side}.bin", counts, vocab_size, f"{key}/{side}")


def describe_tokens(
    folder: Path,
    tokenizer: Tokenizer,
    key: str,
    made_from: dict[str, Any],
    counts: Mapping[str, TokenCounts],
) -> None:
    """Write the metadata that `open_side` checks; `made_from` is for the curious reader."""
    content = {
        "key": key,
        "dtype": token_dtype(tokenizer.vocab_size).name,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.content_hash,
        **{side: asdict(count) for side, count in counts.items()},
        "made_from": made_from,
    }
    write_metadata(folder, FORMAT, VERSION, content)
