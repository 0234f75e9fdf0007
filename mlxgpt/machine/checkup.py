"""This computer -> a report of what mlxgpt can do on it, with a hint for what could be better."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.machine.blas import BlasInfo, blas_in_use
from mlxgpt.machine.cache import cache_dir, folder_size
from mlxgpt.machine.compiler import COMMAND, DISABLE_VARIABLE, Compiler, compile_available
from mlxgpt.machine.device import Device, describe_device
from mlxgpt.machine.gemm import Dtype, measure_gemm
from mlxgpt.machine.memory import available_memory, total_memory

ROOM_TO_TRAIN = 2 * 2**30  # bytes: a 10M model in float32 with Adam and a modest batch
SLOW_PER_CORE = 10.0  # GFLOP/s in float32; any core of the last ten years does three times this


@dataclass(frozen=True)
class Checkup:
    """Everything that `mlxgpt doctor` prints."""

    device: Device
    memory_total: int | None
    memory_available: int | None
    blas: BlasInfo
    gflops: dict[str, float]
    """GFLOP/s of a matrix product by dtype; half precision only on a GPU, a CPU emulates it."""
    compiler: Compiler
    cache: Path
    cache_bytes: int
    hints: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as nested dicts, strings and numbers, memory in bytes."""
        report = asdict(self)
        report["cache"] = str(self.cache)
        report["blas"]["path"] = str(self.blas.path) if self.blas.path else None
        report["hints"] = list(self.hints)
        return report


def examine() -> Checkup:
    """Look at the machine and measure its matrix products; takes one or two seconds."""
    device, blas, compiler = describe_device(), blas_in_use(), compile_available()
    half: tuple[Dtype, ...] = ("bfloat16", "float16") if device.has_gpu else ()
    dtypes: tuple[Dtype, ...] = ("float32", *half)
    gflops = {dtype: measure_gemm(dtype) for dtype in dtypes}
    available, cache = available_memory(), cache_dir()
    hints = (
        *_device_hints(device),
        *_blas_hints(device, blas, gflops["float32"]),
        *_compiler_hints(compiler),
        *_memory_hints(available),
        *_cache_hints(cache),
    )
    return Checkup(
        device=device,
        memory_total=total_memory(),
        memory_available=available,
        blas=blas,
        gflops=gflops,
        compiler=compiler,
        cache=cache,
        cache_bytes=folder_size(cache),
        hints=hints,
    )


def _device_hints(device: Device) -> list[str]:
    if mx.metal.is_available() and not device.has_gpu:
        return ["MLX's default device is the CPU although there is a GPU: mx.set_default_device"]
    return []


def _blas_hints(device: Device, blas: BlasInfo, gflops: float) -> list[str]:
    if device.has_gpu:  # its products are MLX's own
        return []
    if not blas.fast:
        return [f"matrix products use MLX's slow reference BLAS: {blas.why}"]
    if gflops < SLOW_PER_CORE * device.cores:
        return [
            f"{gflops:.0f} GFLOP/s is little for {device.cores} cores with {blas.name}: "
            "is something else running?"
        ]
    return []


def _compiler_hints(compiler: Compiler) -> list[str]:
    if compiler:
        return []
    switched_off = DISABLE_VARIABLE in compiler.why
    remedy = "" if switched_off else f"; install {COMMAND} (Debian: apt install g++)"
    return [f"mx.compile is not used, training is slower: {compiler.why}{remedy}"]


def _cache_hints(cache: Path) -> list[str]:
    existing = next(p for p in (cache, *cache.parents) if p.exists())
    if os.access(existing, os.W_OK):
        return []
    return [f"{cache} cannot be written: set MLXGPT_CACHE to a folder of yours"]


def _memory_hints(available: int | None) -> list[str]:
    if available is not None and available < ROOM_TO_TRAIN:
        return [f"only {available / 2**30:.1f} GiB of memory are free: take a small batch"]
    return []
