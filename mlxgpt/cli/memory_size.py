"""`2GB`, `512MiB`, `1000000` -> bytes."""

import re

from mlxgpt.errors import ConfigError

_DECIMAL = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_UNITS = {"": 1, **_DECIMAL, **_BINARY}


def parse_size(text: str, option: str) -> int:
    """Return how many bytes `text`, the value of `option`, stands for: at least 1.

    GB is 10^9 bytes and GiB 2^30, in small letters or capitals; without a unit it is bytes. Raises
    `ConfigError` for anything else: `2G` means the one to some and the other to others.
    """
    found = re.fullmatch(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]*)\s*", text, re.ASCII)
    unit = found[2].upper() if found else None
    if found is None or unit not in _UNITS:
        short = f"{unit}B" if unit in ("K", "M", "G", "T") else None
        hint = (
            f"{found[1]}{short} or {found[1]}{short[0]}iB" if found and short else "2GB or 512MiB"
        )
        raise ConfigError(f"{option} wants bytes, or a size such as {hint}; got {text!r}")
    size = (
        round(float(found[1]) * _UNITS[unit]) if "." in found[1] else int(found[1]) * _UNITS[unit]
    )
    if size < 1:
        raise ConfigError(f"{option} must be at least one byte; got {text!r}")
    return size
