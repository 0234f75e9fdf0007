"""A file on disk -> its bytes, decompressed, in chunks. What the bytes mean is not known here."""

import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from mlxgpt.errors import DataError

CHUNK = 1 << 20
# Decompressed at once: small, because a run of equal bytes can grow a thousandfold.
ZST_CHUNK = 1 << 16

TEXT_SUFFIXES = frozenset(
    re.findall(
        r"\S+",
        """
        .txt .text .md .markdown .rst .org .adoc .tex .html .htm .xml .json .yaml .yml .toml .ini
        .cfg .py .pyi .c .h .cc .cpp .hpp .m .mm .metal .cu .rs .go .java .kt .swift .scala .cs
        .js .jsx .mjs .ts .tsx .css .rb .pl .php .lua .r .jl .hs .ml .ex .erl .clj .lisp .el .scm
        .sh .sql
        """,
    )
)
JSONL_SUFFIXES = frozenset([".jsonl", ".ndjson"])
PARQUET_SUFFIXES = frozenset([".parquet", ".pq"])

Kind = Literal["text", "jsonl", "parquet"]
Compression = Literal["none", "gz", "zst"]


class Hash(Protocol):
    """What `hashlib` makes."""

    def update(self, data: bytes, /) -> None: ...


@dataclass(frozen=True)
class SourceFile:
    """A file as it was when it was listed; reading refuses it once it has changed."""

    path: Path
    kind: Kind
    compression: Compression
    size: int
    """Bytes on the disk."""
    mtime_ns: int

    @classmethod
    def at(cls, path: Path) -> "SourceFile":
        """Look at the file. Raises `DataError` if it cannot be reached."""
        try:
            status = path.stat()
        except OSError as e:
            raise DataError(f"cannot read {path}: {e.strerror or e}") from e
        suffix, compression = _inner_suffix(path)
        kind: Kind = "text"
        if suffix in JSONL_SUFFIXES:
            kind = "jsonl"
        elif suffix in PARQUET_SUFFIXES:
            kind = "parquet"
        return cls(path, kind, compression, status.st_size, status.st_mtime_ns)

    def chunks(self, size: int = CHUNK) -> Iterator[bytes]:
        """Yield the decompressed bytes. Raises `DataError` for a damaged, cut or changed file."""
        with self._open() as raw:
            try:
                if self.compression == "gz":
                    yield from _read(gzip.GzipFile(fileobj=raw), size)
                elif self.compression == "zst":
                    yield from _read_zst(raw, min(size, ZST_CHUNK))
                else:
                    yield from _read(raw, size)
            except EOFError as e:
                raise DataError(
                    f"{self.path} is cut off: its .{self.compression} data ends too early; "
                    "copy or download it again"
                ) from e
            except (OSError, zlib.error) as e:
                raise DataError(f"cannot read {self.path}: {e}") from e

    def read(self) -> bytes:
        """Return all of the decompressed bytes."""
        return b"".join(self.chunks())

    def hash_into(self, digest: Hash) -> None:
        """Feed kind, compression, size and the bytes on the disk to a `hashlib` object."""
        digest.update(f"{self.kind} {self.compression} {self.size}\n".encode())
        with self._open() as raw:
            try:
                for chunk in _read(raw, CHUNK):
                    digest.update(chunk)
            except OSError as e:
                raise DataError(f"cannot read {self.path}: {e}") from e

    @contextlib.contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        try:
            raw = open(self.path, "rb")  # noqa: SIM115
        except OSError as e:
            raise DataError(f"cannot read {self.path}: {e.strerror or e}") from e
        with raw:
            status = os.fstat(raw.fileno())
            if (status.st_size, status.st_mtime_ns) != (self.size, self.mtime_ns):
                raise DataError(f"{self.path} was changed while it was in use; start again")
            yield raw


def is_known(path: Path) -> bool:
    """Say whether a file found in a folder is taken, going by its name."""
    suffix, _ = _inner_suffix(path)
    return suffix in TEXT_SUFFIXES or suffix in JSONL_SUFFIXES or suffix in PARQUET_SUFFIXES


def _inner_suffix(path: Path) -> tuple[str, Compression]:
    """Return the suffix below `.gz` or `.zst`, in small letters, and the compression."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return Path(path.stem).suffix.lower(), "gz"
    if suffix in (".zst", ".zstd"):
        return Path(path.stem).suffix.lower(), "zst"
    return suffix, "none"


def _read(stream: BinaryIO | gzip.GzipFile, size: int) -> Iterator[bytes]:
    while chunk := stream.read(size):
        yield chunk


def _read_zst(raw: BinaryIO, size: int) -> Iterator[bytes]:
    """Decompress all frames. `stream_reader` would take a cut file for a whole one."""
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=2**31)
    frame = None
    while data := raw.read(size):
        while data:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as e:
                raise OSError(str(e)) from e
            data = frame.unused_data if frame.eof else b""
            if frame.eof:
                frame = None
    if frame is not None:
        raise EOFError
