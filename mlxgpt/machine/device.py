"""This computer -> a few words on it: chip, cores, MLX's device, operating system, versions."""

import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

import mlx.core as mx


@dataclass(frozen=True)
class Device:
    """What MLX runs on, in words fit for a table, a log or a benchmark's conditions."""

    device: str
    """MLX's default device: `gpu (Apple M3 Pro)` or `cpu`."""
    chip: str
    cores: int
    """Processor cores that this process may use."""
    os: str
    python: str
    mlx: str
    gpu_memory: int | None
    """Bytes of GPU memory that MLX recommends to stay below, `None` without a GPU."""

    @property
    def has_gpu(self) -> bool:
        return self.device.startswith("gpu")


def describe_device() -> Device:
    """Look at the machine and return what it is; takes a few milliseconds."""
    default = mx.default_device()
    on_gpu = default.type == mx.DeviceType.gpu
    facts = mx.device_info(default) if on_gpu else {}
    name, memory = facts.get("device_name"), facts.get("max_recommended_working_set_size")
    return Device(
        device=f"gpu ({name})" if name else "gpu" if on_gpu else "cpu",
        chip=chip_name(),
        cores=usable_cores(),
        os=_operating_system(),
        python=f"{platform.python_version()} ({platform.machine()})",
        mlx=metadata.version("mlx"),
        gpu_memory=int(memory) if memory else None,
    )


def usable_cores() -> int:
    """Return the number of processor cores that this process may use."""
    if sys.platform == "linux":  # respects taskset and the like, which cpu_count does not
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chip_name() -> str:
    """Return the processor's name, or its architecture where the system knows no name."""
    name = None
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        name = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    elif sys.platform == "linux":
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            name = parse_cpuinfo(file.read())
    return name or platform.machine()


def parse_cpuinfo(text: str) -> str | None:
    """Return the model name of the first processor in Linux's /proc/cpuinfo, if it has one."""
    found = re.search(r"^(?:model name|Model)\s*:\s*(.+?)\s*$", text, re.MULTILINE)
    return found[1] if found else None


def _operating_system() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    if sys.platform == "linux":
        try:
            return platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError):
            pass
    return f"{platform.system()} {platform.release()}"
