"""A path or a glob -> the files it stands for, in an order that does not depend on the system."""

import glob
import os
from collections.abc import Callable
from pathlib import Path

from mlxgpt.data.source_file import SourceFile, is_known
from mlxgpt.errors import DataError


def list_files(spec: str) -> tuple[list[SourceFile], int]:
    """Return the files that `spec` stands for and how many others were passed over.

    A file named outright, or matched by a glob, is taken whatever it is called. From a folder come
    the kinds in `source_file` only. Raises `DataError` if nothing is found.
    """
    path = Path(os.path.expanduser(spec))
    if path.is_dir():
        files, ignored = walk(path, is_known)
        if not files:
            others = f" ({ignored} files of other kinds)" if ignored else ""
            raise DataError(
                f"the folder {spec} has no text files{others}; "
                "kinds such as .txt .md .py .jsonl .parquet are read, other files by a glob"
            )
        return [SourceFile.at(file) for file in files], ignored
    if path.is_file():
        return [SourceFile.at(path)], 0
    if path.exists():
        raise DataError(f"{spec} is neither a file nor a folder")
    if glob.has_magic(spec):
        matches = [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]
        files = [p for p in matches if p.is_file()]
        if not files:
            raise DataError(f"no file matches the pattern {spec}")
        return [SourceFile.at(file) for file in files], 0
    raise DataError(f"no such file or folder: {spec}")


def walk(
    folder: Path, wanted: Callable[[Path], bool], pruned: frozenset[str] = frozenset()
) -> tuple[list[Path], int]:
    """Return the wanted files below `folder`, sorted by path, and the number of unwanted ones.

    Hidden files and folders and the `pruned` folder names are left out and not counted. Links are
    followed, but no folder is entered twice, so a loop of links ends.
    """
    found: list[Path] = []
    ignored = 0
    entered: set[str] = set()

    def refuse(error: OSError) -> None:
        raise DataError(f"cannot read {error.filename}: {error.strerror}") from error

    for top, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        real = os.path.realpath(top)
        if real in entered:
            folders.clear()
            continue
        entered.add(real)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in pruned)
        for name in files:
            path = Path(top, name)
            if name.startswith("."):
                continue
            # A pipe or a broken link would block or fail; only plain files are text.
            if wanted(path) and path.is_file():
                found.append(path)
            else:
                ignored += 1
    return sorted(found, key=lambda p: p.relative_to(folder).parts), ignored
