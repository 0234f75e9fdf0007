import sys

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.machine import memory
from mlxgpt.machine.memory import (
    available_memory,
    mlx_peak_memory,
    parse_meminfo,
    parse_vm_stat,
    peak_rss,
    total_memory,
)

MEBI = 2**20

VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               12345.
Pages active:                            500000.
Pages inactive:                          400000.
Pages speculative:                         1000.
Pages throttled:                              0.
Pages wired down:                        200000.
"Translation faults":                1234567890.
"""


def test_the_machine_has_memory() -> None:
    total, available = total_memory(), available_memory()
    assert total is not None
    assert available is not None
    assert 256 * MEBI < total < 2**50
    assert 0 <= available <= total


def test_peak_rss_is_in_bytes_and_grows_with_what_is_touched() -> None:
    assert 10 * MEBI < peak_rss() < 2**40
    block = np.ones(peak_rss() // 8 + 16 * MEBI)  # as much again as there ever was
    assert peak_rss() >= block.nbytes


def test_mlx_peak_memory_counts_arrays() -> None:
    mx.reset_peak_memory()
    block = mx.zeros((4 * MEBI,), dtype=mx.float32) + 1
    mx.eval(block)
    assert block.nbytes <= mlx_peak_memory() < 64 * block.nbytes


def test_meminfo_is_read_in_bytes() -> None:
    text = "MemTotal:       2048 kB\nMemAvailable:    1024 kB\nHugePages_Total:       0\n"
    assert parse_meminfo(text) == {"MemTotal": 2 * MEBI, "MemAvailable": MEBI}
    assert parse_meminfo("") == {}


def test_vm_stat_is_read_in_bytes() -> None:
    assert parse_vm_stat(VM_STAT) == 16384 * (12345 + 400000 + 1000)
    assert parse_vm_stat("") is None


@pytest.mark.skipif(sys.platform != "linux", reason="control groups are Linux's")
@pytest.mark.parametrize(("limit", "total"), [("1048576", MEBI), ("max", None), ("", None)])
def test_a_containers_limit_counts(
    monkeypatch: pytest.MonkeyPatch, limit: str, total: int | None
) -> None:
    unlimited = parse_meminfo(memory._read("/proc/meminfo"))["MemTotal"]
    files = {"/sys/fs/cgroup/memory.max": limit, "/sys/fs/cgroup/memory.current": "548576"}
    files["/proc/meminfo"] = memory._read("/proc/meminfo")
    monkeypatch.setattr(memory, "_read", lambda path: files.get(path, ""))
    assert total_memory() == (total or unlimited)
    if total:
        assert available_memory() == 500000
