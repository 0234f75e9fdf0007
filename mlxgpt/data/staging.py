"""A file or folder under construction -> its final place: whole, or not at all."""

import contextlib
import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# A temporary folder whose files nobody has touched for this long belongs to a killed process.
STALE_SECONDS = 24 * 3600


@contextlib.contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """Give a temporary file beside `final`, and rename it to `final` when the block ends well.

    When the block raises, the temporary file is removed and `final` stays as it was.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{final.name}-", dir=final.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, final)
        sync(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Give a temporary folder beside `final`, and rename it to `final` when the block ends well.

    Two writers of one `final` do not disturb each other: the first stays, the second's work is
    thrown away. When the block raises, nothing is left behind.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    _sweep(final)
    temporary = Path(tempfile.mkdtemp(prefix=_prefix(final), dir=final.parent))
    try:
        yield temporary
        for path in temporary.iterdir():
            sync(path)
        sync(temporary)
        try:
            os.rename(temporary, final)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        sync(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sync(path: Path) -> None:
    """Ask the system to put a file or a folder on the disk, so that a power cut cannot halve it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _prefix(final: Path) -> str:
    return f".{final.name[:16]}-"


def _sweep(final: Path) -> None:
    """Remove what killed writers of `final` left behind long ago."""
    for left in final.parent.glob(f"{_prefix(final)}*"):
        with contextlib.suppress(OSError):  # its owner may be at work on it just now
            newest = max(p.stat().st_mtime for p in (left, *left.iterdir()))
            if time.time() - newest > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
