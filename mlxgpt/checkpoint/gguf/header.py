"""The header of a GGUF file -> metadata and the places of tensors, checked against the file's size.

Only the header is read, in pieces that grow. A count or a length is compared with what is left of
the file before it is used, so that a damaged one costs neither memory nor time. Format: magic,
version, number of tensors and of metadata, the metadata, the tensors, and from the next multiple of
the alignment on the data. Little-endian; numbers of a size are 64 bits (from version 2 on).
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlxgpt.checkpoint.gguf.block_types import BLOCK_TYPES
from mlxgpt.errors import CheckpointError, one_line

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_FIRST_PIECE = 1 << 20
_LONGEST_HEADER = 1 << 28
_MOST_ENTRIES = 1 << 22
"""Entries of an array: 16 times the largest vocabulary there is."""
_MOST_TENSORS = 1 << 17
_DEEPEST = 4
"""Arrays in arrays."""

_NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_DTYPES = {kind: np.dtype(name) for kind, name in _NUMBERS.items()}
_BOOL, _STRING, _ARRAY = 7, 8, 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorPlace:
    """One tensor: what it is, and where its bytes stand in the file."""

    dtype: str
    """ggml's name: F32, F16, Q4_0..."""
    shape: tuple[int, ...]
    """(rows, columns) as we count; the file has them the other way round."""
    offset: int
    """From the start of the file."""
    nbytes: int


@dataclass(frozen=True)
class Header:
    """All of a GGUF file but the numbers in its tensors."""

    metadata: dict[str, Any]
    """Key -> int, float, bool, str, or a list of one of them."""
    tensors: dict[str, TensorPlace]
    """Name in the file -> tensor, in the order of the file."""


class _MoreNeeded(Exception):
    """What was read of the file ends before the header does."""


def read_gguf_header(path: Path) -> Header:
    """Read the header of a GGUF file of version 2 or 3.

    Raises `CheckpointError` with the file and the entry for whatever is cut off, out of bounds,
    doubled, overlapping or of an unknown kind.
    """
    try:
        with path.open("rb") as f:
            size = f.seek(0, 2)
            length = min(size, _FIRST_PIECE)
            while True:
                f.seek(0)
                data = f.read(length)
                if len(data) < length:
                    raise CheckpointError(f"{path} became shorter while it was read")
                try:
                    return _Reader(data, size, path).header()
                except _MoreNeeded:
                    length = min(size, 4 * length, _LONGEST_HEADER)
    except FileNotFoundError as e:
        raise CheckpointError(f"{path} is missing") from e
    except OSError as e:
        raise CheckpointError(f"{path} cannot be read: {e.strerror or e}") from e


class _Reader:
    """Goes once through the bytes of a header."""

    def __init__(self, data: bytes, size: int, path: Path) -> None:
        self._data, self._size, self._path = data, size, path
        self._at = 0
        self._entry = "the first bytes"

    def header(self) -> Header:
        tensor_count, entry_count = self._counts()
        metadata: dict[str, Any] = {}
        for n in range(entry_count):
            self._entry = f"metadata entry {n}"
            key = self._string()
            self._entry = f"metadata {key[:80]!r}"
            if key in metadata:
                raise self._wrong("stands twice")
            metadata[key] = self._value(self._number(4), 0)
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment % 8:
            self._entry = "metadata 'general.alignment'"
            raise self._wrong(f"must be a multiple of 8, got {one_line(repr(alignment), 60)}")
        found: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        for n in range(tensor_count):
            self._entry = f"tensor {n}"
            name = self._string()
            self._entry = f"tensor {name[:80]!r}"
            if name in found:
                raise self._wrong("stands twice")
            found[name] = self._tensor(alignment)
        start = -(-self._at // alignment) * alignment
        return Header(metadata, self._places(found, start))

    def _counts(self) -> tuple[int, int]:
        if self._data[:4] != _MAGIC:
            raise CheckpointError(f"{self._path} is not a GGUF file: it does not begin with 'GGUF'")
        self._at = 4
        version = self._number(4)
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = f"{swapped}, big-endian" if swapped in (1, *_VERSIONS) else version
            raise CheckpointError(
                f"{self._path}: GGUF version {kind} is not supported; expected 2 or 3, "
                "little-endian"
            )
        tensors, entries = self._number(8), self._number(8)
        for count, what, smallest in ((tensors, "tensors", 32), (entries, "metadata entries", 13)):
            if count > min(_MOST_TENSORS, self._left() // smallest):
                raise self._wrong(f"count {count} {what}, which {self._size} bytes cannot hold")
        return tensors, entries

    def _left(self) -> int:
        return self._size - self._at

    def _take(self, length: int) -> int:
        """Move on by `length` bytes; return where they begin."""
        start, end = self._at, self._at + length
        if end > len(self._data):
            if end > self._size:
                raise self._wrong(f"ends at byte {end} of a file that has {self._size}")
            if end > _LONGEST_HEADER:
                raise self._wrong(f"ends at byte {end}; a header has at most {_LONGEST_HEADER}")
            raise _MoreNeeded
        self._at = end
        return start

    def _number(self, width: int) -> int:
        start = self._take(width)
        return int.from_bytes(self._data[start : start + width], "little")

    def _string(self) -> str:
        length = self._number(8)
        start = self._take(length)
        try:
            return self._data[start : start + length].decode("utf-8")
        except UnicodeDecodeError as e:
            raise self._wrong("is not UTF-8") from e

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth)
        return self._plain(kind, 1)[0]

    def _array(self, depth: int) -> list[Any]:
        kind, count = self._number(4), self._number(8)
        smallest = {_BOOL: 1, _STRING: 8, _ARRAY: 12}.get(kind)
        if smallest is None:
            smallest = _DTYPES[kind].itemsize if kind in _DTYPES else 1
        if count > min(_MOST_ENTRIES, self._left() // smallest):
            raise self._wrong(f"counts {count} entries, which the file cannot hold")
        if kind == _STRING:
            return self._strings(count)
        if kind != _ARRAY:
            return self._plain(kind, count)
        if depth == _DEEPEST:
            raise self._wrong("is an array too deep in arrays")
        return [self._array(depth + 1) for _ in range(count)]

    def _plain(self, kind: int, count: int) -> list[Any]:
        """Return `count` numbers or truth values."""
        if kind == _BOOL:
            start = self._take(count)
            values = self._data[start : start + count]
            if values.strip(b"\0\1"):
                raise self._wrong("is neither true nor false")
            return list(map(bool, values))
        if kind not in _DTYPES:
            raise self._wrong(f"has the type {kind}, which GGUF does not know")
        start = self._take(count * _DTYPES[kind].itemsize)
        return np.frombuffer(self._data, _DTYPES[kind], count, start).tolist()

    def _strings(self, count: int) -> list[str]:
        """Return `count` strings; written out, since a vocabulary and its merges are 300,000."""
        data, at, available = self._data, self._at, len(self._data)
        length_at: Callable[[bytes, int], tuple[int]] = _LENGTH.unpack_from
        strings: list[str] = []
        try:
            for _ in range(count):
                start = at + 8
                at = start + length_at(data, at)[0]
                if at > available:
                    break
                strings.append(data[start:at].decode("utf-8"))
            else:
                self._at = at
                return strings
        except UnicodeDecodeError as e:
            raise self._wrong(f"is not UTF-8 in entry {len(strings)}") from e
        except struct.error:  # not even the length is there
            at += 8
        self._take(at - self._at)  # says whether the file or only what was read of it ends here
        raise AssertionError

    def _tensor(self, alignment: int) -> tuple[str, tuple[int, ...], int, int]:
        """Return (type, shape, offset in the data, bytes)."""
        rank = self._number(4)
        if not 1 <= rank <= 4:
            raise self._wrong(f"has {rank} dimensions; expected 1 to 4")
        sizes = tuple(self._number(8) for _ in range(rank))
        # MLX counts with 32 bits: 2**31 becomes negative, 2**32 becomes 0.
        if not all(1 <= n < 2**31 for n in sizes):
            raise self._wrong(f"has the odd shape {list(sizes[::-1])}")
        kind, offset = self._number(4), self._number(8)
        if kind not in BLOCK_TYPES:
            raise self._wrong(f"has the type {kind}, which is not known here")
        name, per_block, block_bytes = BLOCK_TYPES[kind]
        if sizes[0] % per_block:
            raise self._wrong(f"has rows of {sizes[0]}; {name} needs a multiple of {per_block}")
        if offset % alignment:
            raise self._wrong(f"begins at {offset}, no multiple of the alignment {alignment}")
        return name, sizes[::-1], offset, prod(sizes) // per_block * block_bytes

    def _places(
        self, found: dict[str, tuple[str, tuple[int, ...], int, int]], start: int
    ) -> dict[str, TensorPlace]:
        places = {
            name: TensorPlace(dtype, shape, start + offset, nbytes)
            for name, (dtype, shape, offset, nbytes) in found.items()
        }
        end, before = start, ""
        for name, place in sorted(places.items(), key=lambda item: item[1].offset):
            if place.offset < end:
                raise CheckpointError(f"{self._path}: {name!r} overlaps {before!r}")
            end, before = place.offset + place.nbytes, name
            if end > self._size:
                raise CheckpointError(
                    f"{self._path} is cut off or damaged: {name!r} ends at byte {end} of a file "
                    f"that has {self._size}"
                )
        return places

    def _wrong(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path} is cut off or damaged: {self._entry} {what}")
