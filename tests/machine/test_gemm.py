import time

import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.machine.gemm import measure_gemm


def test_a_product_is_measured_within_the_time_asked_for() -> None:
    start = time.perf_counter()
    assert 0.01 < measure_gemm(size=128, seconds=0.05) < 1e6
    assert time.perf_counter() - start >= 0.05


def test_half_precision_is_measured_too() -> None:
    assert measure_gemm("bfloat16", size=32, seconds=0.01) > 0


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="float32, float16, bfloat16; got 'int8'"):
        measure_gemm("int8")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="positive"):
        measure_gemm(size=0)
    with pytest.raises(ConfigError, match="positive"):
        measure_gemm(seconds=0.0)
