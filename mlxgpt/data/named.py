"""The name of a built-in corpus -> its files on this machine, downloaded first if need be."""

import sysconfig
from collections.abc import Callable
from pathlib import Path

from mlxgpt.data.download import Download
from mlxgpt.data.listing import walk
from mlxgpt.data.source_file import SourceFile
from mlxgpt.errors import DataError
from mlxgpt.machine.cache import cache_dir

NAMES = ("python", "shakespeare")

SHAKESPEARE = Download(
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    size=1115394,
)

PYTHON_SUFFIXES = frozenset([".py", ".pyi", ".txt", ".rst", ".md"])
# Not the library's own, or not written by hand.
PYTHON_PRUNED = frozenset(["site-packages", "dist-packages", "__pycache__"])


def list_named(
    name: str, progress: Callable[[int, int], None] | None = None
) -> tuple[list[SourceFile], int]:
    """Return the files of the built-in corpus `name` and how many were passed over."""
    if name == "python":
        return python_library(Path(sysconfig.get_path("stdlib")))
    path = SHAKESPEARE.fetch(cache_dir() / "corpora" / "tinyshakespeare.txt", progress)
    return [SourceFile.at(path)], 0


def python_library(folder: Path) -> tuple[list[SourceFile], int]:
    """Return the sources and texts of the standard library: a corpus that is always there.

    Files that are not UTF-8 (the library's own tests of other encodings) are passed over.
    """
    files, ignored = walk(folder, lambda p: p.suffix in PYTHON_SUFFIXES, PYTHON_PRUNED)
    readable = [path for path in files if _is_utf8(path)]
    if not readable:
        raise DataError(
            f"this Python has no sources of its standard library in {folder}; "
            "give a file or a folder as the corpus instead"
        )
    return [SourceFile.at(path) for path in readable], ignored + len(files) - len(readable)


def _is_utf8(path: Path) -> bool:
    try:
        path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return False
    return True
