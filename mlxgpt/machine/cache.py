"""Environment -> the folder in which mlxgpt keeps what it can always make again."""

import os
from pathlib import Path

CACHE_VARIABLE = "MLXGPT_CACHE"


def cache_dir() -> Path:
    """Return the user's cache folder for mlxgpt; it need not exist yet.

    `MLXGPT_CACHE` overrides the place that the operating system has for caches.
    """
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser()
    import platformdirs  # 10 ms, and the override is common where starts are many

    return Path(platformdirs.user_cache_dir("mlxgpt", appauthor=False))


def folder_size(folder: Path) -> int:
    """Return the bytes of all files under `folder`, 0 where it does not exist or vanishes."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:  # another process tidied up
                continue
    return total
