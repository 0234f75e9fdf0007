"""The shim notices what a GPU would let pass: each fault once, and kernels without fault."""

import mlx.core as mx
import numpy as np
import pytest
from metal_shim.shim_kernel import AVAILABLE, KernelFault, ShimKernel

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs g++ on Linux")


def run(
    source: str, threads: int = 64, grid: int = 64, size: int = 64, x: mx.array | None = None
) -> np.ndarray:
    """Run a body over x (float32, 0, 1, 2, ... unless given) to y, both of `size` numbers."""
    x = mx.arange(size, dtype=mx.float32) if x is None else x
    kernel = ShimKernel(name="probe", input_names=["x"], output_names=["y"], source=source)
    (y,) = kernel(
        inputs=[x],
        template=[("N", 64)],
        grid=(grid, 1, 1),
        threadgroup=(threads, 1, 1),
        output_shapes=[(size,)],
        output_dtypes=[mx.float32],
    )
    return np.array(y)


INDEX = "const int i = thread_index_in_threadgroup;\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);\n"

FAULTS = {
    "read out of bounds": ("y[i] = x[i + 1];", r"x\[64\] is out of bounds, it has 64"),
    "read before the beginning": (
        "const device float* p = x + i; y[i] = p[-1];",
        r"x\[-1\] is out of bounds",
    ),
    "written out of bounds": ("y[i * 2] = 0.0f;", r"y\[64\] is out of bounds"),
    "written twice": ("y[i / 2] = 1.0f;", r"y\[\d+\] is written twice"),
    "shared memory out of bounds": (
        "threadgroup float a[32]; a[i] = 0.0f; y[i] = 0.0f;",
        r"a\[\d\d\] is out of bounds",
    ),
    "no barrier before a read": (
        "threadgroup float a[N]; a[i] = x[i]; y[i] = a[63 - i];",
        r"a\[\d+\] is read (before it was written|without a barrier)",
    ),
    "no barrier before the next write": (
        f"threadgroup float a[N]; a[i] = x[i]; {BARRIER} float v = a[63 - i]; a[i] = v; y[i] = v;",
        r"a\[\d+\] is (written|read) without a barrier after another thread (read|wrote) it",
    ),
    "written by two": (
        "threadgroup float a[N]; a[i / 2] = x[i]; y[i] = 0.0f;",
        r"a\[\d+\] is written by two threads",
    ),
    "read before written": (
        f"threadgroup float a[N]; if (i < 8) {{ a[i] = 0.0f; }} {BARRIER} y[i] = a[i];",
        r"a\[\d+\] is read before it was written",
    ),
    "a barrier for some": (
        f"if (i < 40) {{\n {BARRIER} }} y[i] = 0.0f;",
        "not all threads reach the barrier",
    ),
    "two barriers": (
        f"if (i < 32) {{\n {BARRIER} }} else {{\n\n {BARRIER} }} y[i] = 0.0f;",
        "not all threads reach the barrier in line",
    ),
    "a sum for some": (
        "float v = 0.0f;\n if (i < 40) { v = simd_sum(x[i]); } y[i] = v;",
        "not all lanes reach the simd_ function in line 3, the end",
    ),
    "constant as device": (
        "const device int* p = x_shape; y[i] = float(p[0]);",
        "refuses the kernel",
    ),
    "an input written": ("x[i] = 0.0f; y[i] = 0.0f;", "refuses the kernel"),
}


@pytest.mark.parametrize(("body", "message"), FAULTS.values(), ids=FAULTS)
def test_it_notices(body: str, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        run(INDEX + body)


def test_a_kernel_without_fault_runs_in_groups_that_share_nothing() -> None:
    source = f"""
        threadgroup float a[N];
        const int i = thread_index_in_threadgroup;
        const int at = threadgroup_position_in_grid.x * N;
        a[i] = x[at + i];
        {BARRIER}
        y[at + i] = a[63 - i];
    """
    reversed_ = np.arange(192.0).reshape(3, 64)[:, ::-1].reshape(-1)
    assert np.array_equal(run(source, grid=192, size=192), reversed_)


def test_simd_functions_stay_in_their_simdgroup() -> None:
    x = np.random.default_rng(0).normal(size=80).astype(np.float32)
    ends = np.split(x, [32, 64])
    lane, each = np.arange(80) % 32, np.repeat([32, 32, 16], [32, 32, 16])
    last = np.arange(80) // 32 * 32 + each - 1
    expected = {
        "simd_sum(v)": np.repeat([e.sum() for e in ends], [32, 32, 16]),
        "simd_max(v)": np.repeat([e.max() for e in ends], [32, 32, 16]),
        "simd_broadcast(v, 3)": np.repeat([e[3] for e in ends], [32, 32, 16]),
        "simd_shuffle_xor(v, 5)": x[np.arange(80) ^ 5],
        "simd_shuffle_down(v, 2)": np.where(
            lane + 2 < each, x[np.minimum(np.arange(80) + 2, last)], x
        ),
    }
    calls = [f"y[i + {80 * n}] = {call};" for n, call in enumerate(expected)]
    body = INDEX + "const float v = x[i % 80];" + "\n".join(calls)
    padded = mx.array(np.resize(x, 400))
    got = run(body, threads=80, grid=80, size=400, x=padded).reshape(5, 80)
    for row, (call, wanted) in zip(got, expected.items(), strict=True):
        assert np.allclose(row, wanted, atol=1e-5), call


def test_what_is_not_written_is_not_a_number() -> None:
    y = run(INDEX + "if (i != 5) { y[i] = 0.0f; }")
    assert np.flatnonzero(np.isnan(y)).tolist() == [5]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16], ids=str)
def test_half_precision_rounds_as_mlx_does(dtype: mx.Dtype) -> None:
    numbers = mx.random.normal((512,), key=mx.random.key(0)) * 100
    kernel = ShimKernel(
        name="halves",
        input_names=["x", "z"],
        output_names=["y", "w"],
        source="const int i = thread_index_in_threadgroup; y[i] = T(x[i]); w[i] = float(z[i]);",
    )
    rounded, widened = kernel(
        inputs=[numbers, numbers.astype(dtype)],
        template=[("T", dtype)],
        grid=(512, 1, 1),
        threadgroup=(512, 1, 1),
        output_shapes=[(512,), (512,)],
        output_dtypes=[dtype, mx.float32],
    )
    assert mx.array_equal(rounded, numbers.astype(dtype))
    assert mx.array_equal(widened, numbers.astype(dtype).astype(mx.float32))
