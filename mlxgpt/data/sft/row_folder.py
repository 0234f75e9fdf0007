"""A path -> the file of rows to train on and, if it is a folder with one, the file to validate on.

Other files of the folder, such as `test.jsonl`, are left alone.
"""

from pathlib import Path

from mlxgpt.data.sft.row_files import ENDINGS, row_suffix
from mlxgpt.errors import DataError

_LISTED = 8


def find_files(path: str | Path) -> tuple[Path, Path | None]:
    """Return (training, validation) of a folder, or (the file itself, None).

    In a folder they are called `train` and `valid` or `validation`, with the ending of any file of
    rows: `.jsonl`, `.ndjson`, `.json`, and behind it `.gz` or `.zst`. Raises `DataError` if there
    are two for one purpose, or none to train on.
    """
    place = Path(path).expanduser()
    if not place.is_dir():
        return place, None
    try:
        files = sorted(file for file in place.iterdir() if file.is_file())
    except OSError as e:
        raise DataError(f"cannot read {place}: {e.strerror or e}") from e
    train = _only(place, files, "train")
    if train is None:
        names = [file.name for file in files]
        there = ", ".join(names[:_LISTED]) or "no file"
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        raise DataError(
            f"{place} has no train.jsonl (or .json, also .gz, .zst); there is {there}{more}; "
            "give the file itself, or rename it"
        )
    return train, _only(place, files, "valid", "validation")


def _only(place: Path, files: list[Path], *stems: str) -> Path | None:
    found = [file for file in files if row_suffix(file) and _stem(file) in stems]
    if len(found) > 1:
        raise DataError(
            f"{place} has both {found[0].name} and {found[1].name}; give one of them by its "
            "name, or take one away"
        )
    return found[0] if found else None


def _stem(file: Path) -> str:
    name = file.name.lower()
    for ending in ENDINGS[1:]:
        name = name.removesuffix(ending)
    return name.rpartition(".")[0]
