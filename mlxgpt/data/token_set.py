"""A folder with `train.bin`, `val.bin` and `metadata.json` <-> two token files, checked."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlxgpt.data.token_file import TokenCounts, TokenFile, token_dtype
from mlxgpt.errors import DataError
from mlxgpt.text import Tokenizer

FORMAT = "mlxgpt tokens"
VERSION = 1
METADATA = "metadata.json"


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
        """Map and check both files.

        A folder that is damaged, or was written with another tokenizer, is refused with a
        `DataError` and never mended in silence: a disk that alters files is something to know of.
        """
        metadata = _read_metadata(folder)
        try:
            counts = {side: TokenCounts(**metadata[side]) for side in ("train", "val")}
            dtype, vocab_size = metadata["dtype"], metadata["vocab_size"]
            tokenizer_hash, key = metadata["tokenizer"], metadata["key"]
        except (KeyError, TypeError) as e:
            raise _refused(folder, f"its {METADATA} is incomplete ({e})") from e
        if vocab_size != tokenizer.vocab_size or tokenizer_hash != tokenizer.content_hash:
            raise _refused(
                folder,
                f"it was written with another tokenizer ({vocab_size} ids, this one has "
                f"{tokenizer.vocab_size})",
            )
        if dtype != token_dtype(vocab_size).name:
            raise _refused(folder, f"{dtype} is not the type for {vocab_size} ids")
        train, val = (
            TokenFile.open(folder / f"{side}.bin", counts[side], vocab_size, f"{key}/{side}")
            for side in ("train", "val")
        )
        return cls(train, val, folder, reused)


def write_metadata(
    folder: Path,
    tokenizer: Tokenizer,
    key: str,
    made_from: dict[str, Any],
    counts: dict[str, TokenCounts],
) -> None:
    """Write what `TokenSet.open` checks; `made_from` is for the curious reader."""
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "key": key,
        "dtype": token_dtype(tokenizer.vocab_size).name,
        "vocab_size": tokenizer.vocab_size,
        "tokenizer": tokenizer.content_hash,
        **{side: asdict(count) for side, count in counts.items()},
        "made_from": made_from,
    }
    (folder / METADATA).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")


def _read_metadata(folder: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise _refused(folder, f"its {METADATA} cannot be read ({e})") from e
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _refused(folder, f"its {METADATA} is of another kind")
    if metadata.get("version") != VERSION:
        raise _refused(folder, f"it has version {metadata.get('version')}, not {VERSION}")
    return metadata


def _refused(folder: Path, what: str) -> DataError:
    return DataError(f"the token cache {folder} cannot be used: {what}; delete it and run again")
