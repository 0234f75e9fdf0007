"""A dtype -> the GFLOP/s that one matrix product reaches on MLX's default device."""

import time
from typing import Literal

import mlx.core as mx

from mlxgpt.errors import ConfigError

Dtype = Literal["float32", "float16", "bfloat16"]
DTYPES: dict[str, mx.Dtype] = {
    "float32": mx.float32,
    "float16": mx.float16,
    "bfloat16": mx.bfloat16,
}


def measure_gemm(dtype: Dtype = "float32", size: int | None = None, seconds: float = 0.3) -> float:
    """Return the best of repeated `size` x `size` products, in GFLOP/s (2 size^3 operations each).

    The best, because a measurement can only be too slow. `size` is 4096 on a GPU and 1024 on a CPU
    unless given; at least two products follow the warm-up, however long they take. Raises
    `ConfigError` for another dtype, or a size or time that is not positive.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"a GEMM is measured in {', '.join(DTYPES)}; got '{dtype}'")
    if size is None:
        size = 4096 if mx.default_device().type == mx.DeviceType.gpu else 1024
    if size < 1 or seconds <= 0:
        raise ConfigError(f"size and seconds must be positive, got {size} and {seconds}")
    left, right = (
        mx.random.uniform(-1.0, 1.0, (size, size), key=mx.random.key(i)).astype(DTYPES[dtype])
        for i in (0, 1)
    )
    mx.eval(left, right)
    mx.eval(left @ right)  # warm-up: kernels, threads and pages
    best, runs, end = float("inf"), 0, time.perf_counter() + seconds
    while runs < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        mx.eval(left @ right)
        best = min(best, time.perf_counter() - start)
        runs += 1
    return 2.0 * size**3 / best / 1e9
