"""The operating system's counters -> bytes of memory: the machine's, this process's, MLX's."""

import re
import resource
import subprocess
import sys
from pathlib import Path

# What a container may use: control groups version 2, then version 1.
_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


def total_memory() -> int | None:
    """Return the memory of the machine, or of the container, in bytes; `None` if unknown."""
    if sys.platform == "darwin":
        return _number(_output("sysctl", "-n", "hw.memsize"))
    machine = parse_meminfo(_read("/proc/meminfo")).get("MemTotal")
    return min((n for n in (machine, _limit()[0]) if n is not None), default=None)


def available_memory() -> int | None:
    """Return the bytes that can be had without swapping; `None` if unknown."""
    if sys.platform == "darwin":
        return parse_vm_stat(_output("vm_stat"))
    machine = parse_meminfo(_read("/proc/meminfo")).get("MemAvailable")
    limit, used = _limit()
    left = None if limit is None or used is None else max(0, limit - used)
    return min((n for n in (machine, left) if n is not None), default=None)


def peak_rss() -> int:
    """Return the largest resident size that this process has had so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts in KiB


def mlx_peak_memory() -> int:
    """Return the most bytes that MLX's arrays have held at one time in this process."""
    import mlx.core as mx  # the other numbers here are wanted without it

    return mx.get_peak_memory()


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the entries of Linux's /proc/meminfo in bytes."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", text, re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in lines}


def parse_vm_stat(text: str) -> int | None:
    """Return the bytes that macOS's vm_stat counts as free, inactive or speculative."""
    page = re.search(r"page size of (\d+) bytes", text)
    pages = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)\.", text, re.MULTILINE)
    return int(page[1]) * sum(map(int, pages)) if page and pages else None


def _limit() -> tuple[int | None, int | None]:
    """Return (limit, used) of the control group; no limit reads "max" or an absurd number."""
    for limit_file, used_file in _LIMITS:
        limit = _number(_read(limit_file))
        if limit is not None and limit < 2**60:
            return limit, _number(_read(used_file))
    return None, None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
