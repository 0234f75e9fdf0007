"""Where the machine code of the kernels is kept, and whether it is there; imports no numba.

The folder's name is a digest of all that the code depends on, because numba itself looks only at
the file of a kernel and not at the files of the helpers that it uses.
"""

import contextlib
import hashlib
import os
import sys
import time
from functools import cache
from pathlib import Path

from mlxgpt.machine.cache import cache_dir

_KEPT_VERSIONS = 3
_KEPT_DAYS = 7
"""Others than these versions are dropped when they are older than that."""


def code_folder() -> Path:
    """Return the folder for the machine code of this version; it need not exist yet."""
    return cache_dir() / "kernels" / _digest()


def has_code(purpose: str) -> bool:
    """Return whether the kernels for `purpose` were compiled here, for these versions."""
    return _mark(purpose).exists()


def mark_code(purpose: str) -> None:
    """Remember that they are compiled, and drop what other versions left long ago."""
    import shutil

    folder = code_folder()
    with contextlib.suppress(OSError):  # a cache that cannot be written is not worth an error
        folder.mkdir(parents=True, exist_ok=True)
        _mark(purpose).touch()
        others = [other for other in folder.parent.iterdir() if other != folder]
        others.sort(key=lambda other: other.stat().st_mtime, reverse=True)
        for other in others[_KEPT_VERSIONS:]:
            if other.stat().st_mtime < time.time() - _KEPT_DAYS * 86400:
                shutil.rmtree(other, ignore_errors=True)


def _mark(purpose: str) -> Path:
    return code_folder() / f"{purpose}-{_processor()}"


@cache
def _digest() -> str:
    here = Path(__file__).parent
    digest = hashlib.sha256(
        f"{here} {sys.version} {_version('numba')} {_version('llvmlite')}".encode()
    )
    for path in sorted(here.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _version(package: str) -> str:
    from importlib import metadata  # 8 ms that a prompt does not need

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


@cache
def _processor() -> str:
    """A digest of the processor's name and abilities, which the machine code is made for."""
    import platform

    described = [platform.machine(), os.environ.get("NUMBA_CPU_NAME", "")]
    with contextlib.suppress(OSError):  # Linux; elsewhere a home folder seldom serves two machines
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        described += sorted({s for s in lines if s.startswith(("model name", "flags", "Features"))})
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]
