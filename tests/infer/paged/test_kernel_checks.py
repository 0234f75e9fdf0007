import pytest
from metal_shim.shim_kernel import AVAILABLE, ShimKernel

from mlxgpt.infer.paged import kernel_checks
from mlxgpt.infer.paged.kernel_checks import check_kernel


def test_without_an_apple_gpu_the_plain_path_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_checks, "on_apple_gpu", lambda: False)
    (check,) = check_kernel()
    assert (check.state, check.difference) == ("skipped", None)
    assert check.reason == "no Apple GPU: the plain path serves"


@pytest.mark.skipif(not AVAILABLE, reason="needs g++ on Linux")
@pytest.mark.slow
def test_the_kernel_passes_in_each_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_checks, "on_apple_gpu", lambda: True)
    monkeypatch.setattr(kernel_checks, "_SHAPES", ((64, 3),))
    checks = check_kernel(ShimKernel)
    assert [c.name.split(", ")[1] for c in checks] == ["float32", "float16", "bfloat16"]
    assert [c.state for c in checks] == ["ok"] * 3
    assert all(0 < (c.difference or 0) <= (c.allowed or 0) for c in checks)


def test_a_kernel_that_does_not_compile_is_told_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def make(**_: object) -> ShimKernel:
        raise RuntimeError("program_source:12: error: use of undeclared identifier")

    monkeypatch.setattr(kernel_checks, "on_apple_gpu", lambda: True)
    checks = check_kernel(make)
    assert [c.state for c in checks] == ["failed"] * 3
    assert all("undeclared identifier" in (c.reason or "") for c in checks)


@pytest.mark.metal
def test_metal_passes_in_each_precision() -> None:
    assert [c.state for c in check_kernel()] == ["ok"] * 3
