"""A file or folder under construction -> its final place: whole, or not at all.

Everything is written under a temporary name in the same folder, put on the disk and renamed. So a
reader finds the old one or the new one, and a crash, a full disk or a second writer changes nothing
of that.
"""

import contextlib
import errno
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "tmp-"


@contextlib.contextmanager
def new_file(final: Path) -> Iterator[Path]:
    """Give the name of a temporary file, and rename it to `final` when the block ends well.

    The block makes the file. The temporary name keeps the suffix, since some writers insist on
    theirs. When the block raises, the temporary file is removed and `final` stays as it was.
    """
    temporary = _temporary(final)
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, final)
        sync(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(final: Path, *, same: bool = True) -> Iterator[Path]:
    """Give a temporary folder, and rename it to `final` when the block ends well.

    Two writers of one `final` do not disturb each other: the first stays, the second's work is
    thrown away, which is as well where both write the `same`; else it raises `FileExistsError`.
    When the block raises, nothing is left behind.
    """
    temporary = _temporary(final)
    temporary.mkdir()
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
            if not same:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final)) from e
        sync(final.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_bytes(final: Path, data: bytes) -> None:
    """Write `data` to `final`."""
    with new_file(final) as temporary:
        temporary.write_bytes(data)


def share_file(source: Path, target: Path) -> None:
    """Make `target` another name of `source` (a copy where hard links are not to be had)."""
    if target.exists() and target.samefile(source):
        return  # a rename from one name of a file to another does nothing and leaves both
    with new_file(target) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def discard(path: Path) -> None:
    """Make a file or folder vanish at once, so that a crash leaves nothing that looks like it.

    Raises `OSError` if it stays.
    """
    doomed = _temporary(path)
    path.rename(doomed)
    if doomed.is_dir():
        shutil.rmtree(doomed, ignore_errors=True)
    else:
        doomed.unlink()


def sweep(folder: Path, older_than: float = 0.0) -> None:
    """Remove what killed writers left in `folder`, if nobody has touched it for so many seconds."""
    for left in folder.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # its owner may be at work on it just now
            inside = left.iterdir() if left.is_dir() else ()
            newest = max(path.stat().st_mtime for path in (left, *inside))
            if time.time() - newest < older_than:
                continue
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()


def sync(path: Path) -> None:
    """Ask the system to put a file or a folder on the disk, so that a power cut cannot halve it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary(final: Path) -> Path:
    """A name beside `final` that nobody else has; it ends as `final` does, suffix and all."""
    return final.with_name(f"{_PREFIX}{secrets.token_hex(6)}-{final.name[-100:]}")
