"""Ids <-> a plain binary file of uint16 or uint32: written once, then mapped and only read.

The numbers that describe such a file stand in the metadata of its token set.
"""

import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlxgpt.errors import DataError

# Ids scanned at once when a file is opened.
SCAN_IDS = 1 << 22


def token_dtype(vocab_size: int) -> np.dtype:
    """Return the smallest little-endian type that holds every id below `vocab_size`."""
    return np.dtype("<u2" if vocab_size <= 65536 else "<u4")


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """What must be true of a token file."""

    num_tokens: int
    num_documents: int
    num_bytes: int
    """UTF-8 bytes of the text that the ids stand for; end-of-text tokens stand for none."""
    max_id: int | None
    crc32: int


@dataclass(frozen=True, eq=False)
class TokenFile:
    """The ids of one side of a corpus: documents one after another, each with its end-of-text."""

    tokens: np.ndarray
    """uint16 or uint32 (num_tokens,), mapped from the disk."""
    vocab_size: int
    num_documents: int
    num_bytes: int
    fingerprint: str
    """Names the content: equal fingerprints mean equal ids."""

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @classmethod
    def open(
        cls, path: Path, counts: TokenCounts, vocab_size: int, fingerprint: str
    ) -> "TokenFile":
        """Map the file and check all of it, at about the speed of the disk.

        Size, range of the ids and checksum are compared. The range is what MLX would not check: an
        id beyond the embedding reads other memory and trains on. Raises `DataError` with the file
        and the position of the first bad id.
        """
        dtype = token_dtype(vocab_size)
        try:
            size = path.stat().st_size
        except OSError as e:
            raise _damaged(path, e.strerror or str(e)) from e
        expected = counts.num_tokens * dtype.itemsize
        if size != expected:
            raise _damaged(path, f"it has {size} bytes instead of {expected}")
        # An empty file cannot be mapped.
        tokens = np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)
        crc = 0
        for start in range(0, len(tokens), SCAN_IDS):
            block = tokens[start : start + SCAN_IDS]
            if block.max() >= vocab_size:
                at = start + int(np.argmax(block >= vocab_size))
                raise _damaged(
                    path,
                    f"the id {tokens[at]} at token {at} (byte {at * dtype.itemsize}) is not below "
                    f"the vocabulary size {vocab_size}",
                )
            crc = zlib.crc32(block.view(np.uint8).data, crc)
        if crc != counts.crc32:
            raise _damaged(path, "its checksum is wrong")
        return cls(tokens, vocab_size, counts.num_documents, counts.num_bytes, fingerprint)


class TokenWriter:
    """Appends ids to a new token file and counts them."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        self._file = open(path, "wb")  # noqa: SIM115
        self._dtype = token_dtype(vocab_size)
        self._tokens = self._documents = self._bytes = self._crc = 0
        self._max_id: int | None = None

    def append(self, ids: np.ndarray, num_documents: int, num_bytes: int) -> None:
        """Write whole documents. `ids` (n,) is of the file's own type; a cast here could wrap."""
        assert ids.dtype == self._dtype
        if len(ids):
            self._max_id = max(int(ids.max()), self._max_id or 0)
        raw = ids.tobytes()
        self._file.write(raw)
        self._crc = zlib.crc32(raw, self._crc)
        self._tokens += len(ids)
        self._documents += num_documents
        self._bytes += num_bytes

    def close(self) -> TokenCounts:
        """Close the file and return what was counted."""
        self._file.close()
        return TokenCounts(
            num_tokens=self._tokens,
            num_documents=self._documents,
            num_bytes=self._bytes,
            max_id=self._max_id,
            crc32=self._crc,
        )


def _damaged(path: Path, what: str) -> DataError:
    return DataError(
        f"the token file {path} is damaged: {what}; delete the folder {path.parent} and run again"
    )
