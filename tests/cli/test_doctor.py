import dataclasses
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mlxgpt.cli import doctor as doctor_module
from mlxgpt.cli.device_checks import run_checks
from mlxgpt.cli.doctor import doctor
from mlxgpt.machine import checkup as checkup_module
from mlxgpt.machine.blas import BlasInfo
from mlxgpt.machine.checkup import Checkup, examine
from mlxgpt.machine.compiler import Compiler
from mlxgpt.machine.device_check import DeviceCheck

app = typer.Typer()
app.command()(doctor)


CHECKS = [
    DeviceCheck("attention, float16", "fast against plain", "ok", 1.3e-4, 2e-3),
    DeviceCheck("RMSNorm, float16", "fast against plain", "ok", 0.0, 2e-3),
    DeviceCheck("kernel", "kernel against formula", "skipped", reason="no [Apple] GPU"),
]
WRONG = DeviceCheck("training", "one against another", "failed", float("nan"), 1e-3)
BROKEN = DeviceCheck("loss", "one against another", "failed", allowed=1e-3, reason="E: [metal] no")


@pytest.fixture(autouse=True)
def little_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup_module, "measure_gemm", lambda _: 12345.6)
    monkeypatch.setattr(doctor_module, "run_checks", lambda: CHECKS)


def shown(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "80"})
    assert result.exit_code == code, result.output
    return result.stdout


def test_the_table_says_what_there_is_and_fits_80_columns() -> None:
    text = shown()
    for word in ("device", "chip", "memory", "BLAS", "12,346 GFLOP/s in float32", "mx.compile"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


def test_json_holds_the_same_facts() -> None:
    report = json.loads(shown("--json"))
    assert report["gflops"]["float32"] == 12345.6
    assert report["memory_total"] >= report["memory_available"]
    assert report["device"]["mlx"] in shown()
    assert report["blas"]["name"]


def test_it_tells_which_tier_tokenizes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(shown("--json"))["tokenizer"] in " ".join(shown().split())
    monkeypatch.setenv("MLXGPT_KERNELS", "off")
    assert "plain Python, as MLXGPT_KERNELS=off says" in shown()
    monkeypatch.delenv("MLXGPT_KERNELS")
    monkeypatch.setattr("mlxgpt.text.compiled.tier._has_numba", lambda: False)
    assert "plain Python, because numba cannot be imported" in shown()


def test_every_shortcoming_has_its_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = dataclasses.replace(checkup_module.describe_device(), device="cpu", cores=4)
    slow = BlasInfo("reference", "it was [too late]", fast=False)
    monkeypatch.setattr(checkup_module, "describe_device", lambda: cpu)
    monkeypatch.setattr(checkup_module, "blas_in_use", lambda: slow)
    monkeypatch.setattr(checkup_module, "compile_available", lambda: Compiler(False, "no g++"))
    monkeypatch.setattr(checkup_module, "available_memory", lambda: 2**29)
    text = " ".join(shown().split())
    assert "hint matrix products use MLX's slow reference BLAS: it was [too late]" in text
    assert "hint mx.compile is not used, training is slower: no g++; install g++" in text
    assert "hint only 0.5 GiB of memory are free" in text
    assert "everything is as it should be" not in text


def test_a_good_machine_has_no_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = BlasInfo("OpenBLAS", "installed")
    monkeypatch.setattr(checkup_module, "blas_in_use", lambda: fast)
    monkeypatch.setattr(checkup_module, "compile_available", lambda: Compiler(True, "it works"))
    monkeypatch.setattr(checkup_module, "available_memory", lambda: 2**35)
    assert examine().hints == ()
    assert "everything is as it should be" in shown()


def test_a_slow_product_in_spite_of_a_fast_blas_is_hinted_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def checkup(gflops: float) -> Checkup:
        monkeypatch.setattr(checkup_module, "measure_gemm", lambda _: gflops)
        return examine()

    if checkup(1e5).device.has_gpu or not checkup(1e5).blas.fast:
        pytest.skip("a GPU's products are MLX's own")
    cores = checkup(1e5).device.cores
    assert not any("GFLOP/s is little" in hint for hint in checkup(11.0 * cores).hints)
    assert any("GFLOP/s is little" in hint for hint in checkup(9.0 * cores).hints)


def test_a_cache_that_cannot_be_written_is_not_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hints = checkup_module._cache_hints
    assert hints(tmp_path / "not" / "there") == []
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "MLXGPT_CACHE" in hints(tmp_path / "not" / "there")[0]


def test_each_check_has_its_line_under_what_is_compared() -> None:
    lines = [" ".join(line.split()) for line in shown().splitlines()]
    start = lines.index("check difference allowed")
    assert lines[start + 1 : start + 6] == [
        "fast against plain",
        "attention, float16 1.3e-04 2.0e-03 ok",
        "RMSNorm, float16 0.0e+00 2.0e-03 ok",
        "kernel against formula",
        "kernel skipped: no [Apple] GPU",
    ]
    assert json.loads(shown("--json"))["checks"] == [check.to_dict() for check in CHECKS]


def test_a_failed_check_is_named_and_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_module, "run_checks", lambda: [*CHECKS, WRONG, BROKEN])
    text = " ".join(shown(code=1).split())
    assert "training nan 1.0e-03 failed loss 1.0e-03 failed: E: [metal] no" in text
    assert "failed 2 of 5 checks: do not trust what this device computes there" in text
    assert "everything is as it should be" not in text
    report = json.loads(shown("--json", code=1))
    assert [check["state"] for check in report["checks"]].count("failed") == 2


@pytest.mark.slow
def test_this_machine_passes_all_checks() -> None:
    checks = run_checks()
    assert {check.state for check in checks} <= {"ok", "skipped"}
    for part in ("attention", "logits", "training", "paged attention"):
        assert any(check.name.startswith(part) for check in checks)
