"""Documents -> one mapped file of UTF-8 and the places where they end, checked when opened."""

import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlxgpt.data.metadata import METADATA, read_metadata, refused, write_metadata
from mlxgpt.errors import DataError

FORMAT, VERSION = "mlxgpt text", 1
TEXT, ENDS = "text.txt", "ends.bin"
# Bytes, and document ends, that are checked at once when a map is opened.
BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class TextMap:
    """The text of many documents, one after another without anything between them."""

    text: np.ndarray
    """uint8 (num_bytes,): UTF-8, mapped from the disk."""
    ends: np.ndarray
    """int64 (num_documents,): where each document ends; it rises, for none is empty."""
    fingerprint: str
    """Names the content: equal fingerprints mean equal documents."""

    @property
    def num_bytes(self) -> int:
        return len(self.text)

    @property
    def num_documents(self) -> int:
        return len(self.ends)

    @classmethod
    def open(cls, folder: Path) -> "TextMap":
        """Map the files and check all of them, at about the speed of the disk.

        Raises `DataError` for whatever is not as `write_text_map` left it. The checksum vouches for
        the UTF-8, too.
        """
        metadata = read_metadata(folder, "text", FORMAT, VERSION)
        try:
            num_bytes, num_documents = metadata["num_bytes"], metadata["num_documents"]
            text = _map(folder / TEXT, np.dtype("u1"), num_bytes, metadata["text_crc32"])
            ends = _map(folder / ENDS, np.dtype("<i8"), num_documents, metadata["ends_crc32"])
            fingerprint = f"{metadata['key']}/text"
        except (KeyError, TypeError) as e:
            raise refused(folder, "text", f"its {METADATA} is incomplete ({e})") from e
        if num_documents == 0 or ends[-1] != num_bytes:
            raise refused(folder, "text", "its documents do not end where its text ends")
        return cls(text, ends, fingerprint)

    def document_at(self, byte: int) -> int:
        """Return the number of the document that `byte` belongs to."""
        return int(np.searchsorted(self.ends, byte, side="right"))

    def borders(self, document: int) -> tuple[int, int]:
        """Return where a document begins and ends."""
        return int(self.ends[document - 1]) if document else 0, int(self.ends[document])

    def character_start(self, byte: int) -> int:
        """Return `byte`, or the first byte of the character that it is inside of."""
        while self.text[byte] & 0xC0 == 0x80:
            byte -= 1
        return byte

    def read(self, start: int, stop: int) -> str:
        """Return the text between two borders of characters."""
        return self.text[start:stop].tobytes().decode()


def write_text_map(
    folder: Path,
    documents: Iterable[Iterable[str]],
    key: str,
    made_from: dict[str, Any],
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Write what `TextMap.open` reads; each document comes in pieces, and one is held at once.

    `progress` is told how many bytes are written, `made_from` is for the curious reader.
    """
    num_bytes = num_documents = text_crc32 = ends_crc32 = 0
    with open(folder / TEXT, "wb") as text, open(folder / ENDS, "wb") as ends:
        for pieces in documents:
            begin = num_bytes
            for piece in pieces:
                raw = piece.encode()
                text.write(raw)
                num_bytes += len(raw)
                text_crc32 = zlib.crc32(raw, text_crc32)
                progress(num_bytes)
            assert num_bytes > begin, "an empty document has no place in a map"
            end = struct.pack("<q", num_bytes)
            ends.write(end)
            num_documents += 1
            ends_crc32 = zlib.crc32(end, ends_crc32)
    content = {
        "key": key,
        "num_bytes": num_bytes,
        "num_documents": num_documents,
        "text_crc32": text_crc32,
        "ends_crc32": ends_crc32,
    }
    write_metadata(folder, FORMAT, VERSION, {**content, "made_from": made_from})


def _map(path: Path, dtype: np.dtype, count: int, crc32: int) -> np.ndarray:
    """Map a file of `count` numbers. Raises `DataError` if its size or its checksum is wrong."""
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise _damaged(path, f"it has {size} bytes instead of {count * dtype.itemsize}")
        # An empty file cannot be mapped. A plain array over the mapping is quicker to slice.
        array = np.asarray(np.memmap(path, dtype, mode="r")) if size else np.empty(0, dtype)
    except OSError as e:
        raise _damaged(path, e.strerror or str(e)) from e
    crc = 0
    for start in range(0, len(array), BLOCK):
        crc = zlib.crc32(array[start : start + BLOCK].view(np.uint8).data, crc)
    if crc != crc32:
        raise _damaged(path, "its checksum is wrong")
    return array


def _damaged(path: Path, what: str) -> DataError:
    return refused(path.parent, "text", f"{path.name} is damaged: {what}")
