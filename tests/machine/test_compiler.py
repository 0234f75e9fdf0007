import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from mlxgpt.machine import compiler
from mlxgpt.machine.compiler import compile_available

on_cpu = pytest.mark.skipif(
    mx.default_device().type != mx.DeviceType.cpu or sys.platform == "win32",
    reason="a GPU needs no C++ compiler",
)


def script(folder: Path, body: str) -> None:
    """Put a program `g++` into `folder`."""
    program = folder / "g++"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def python(code: str, **variables: str) -> str:
    """Run in a process of its own: MLX looks for g++ once and keeps compiled kernels in memory."""
    command = [sys.executable, "-W", "error", "-c", code]
    run = subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    return run.stdout or run.stderr


def test_it_works_where_mlx_has_what_it_needs() -> None:
    found = compile_available()
    if mx.default_device().type == mx.DeviceType.cpu:
        assert bool(found) == (shutil.which("g++") is not None)
    else:
        assert found


@on_cpu
def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = compile_available()
    assert not found
    assert found.why == "no g++ on PATH, which MLX needs on a CPU"


@on_cpu
def test_a_compiler_that_does_not_answer_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compile_available().why == "'g++ --version' fails"


@on_cpu
def test_mlx_runs_eagerly_without_a_compiler(tmp_path: Path) -> None:
    """What callers rely on: a function given to `mx.compile` still runs, only not fused."""
    code = "import mlx.core as mx; print(mx.compile(lambda x: mx.cos(x) * 1.625)(mx.array(0.0)))"
    assert python(code, PATH=str(tmp_path), TMPDIR=str(tmp_path)) == "array(1.625, dtype=float32)\n"
    assert list(tmp_path.iterdir()) == []


@on_cpu
def test_a_compiler_that_fails_is_reported_with_its_words(tmp_path: Path) -> None:
    script(tmp_path, '[ "$1" = --version ] && exit 0\necho "cstdint: no such file" >&2; exit 1')
    code = "from mlxgpt.machine.compiler import *; print(compile_available().why)"
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    said = python(code, PATH=path, TMPDIR=str(tmp_path))
    assert said == "g++ failed: cstdint: no such file\n"


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLX_DISABLE_COMPILE", "1")
    assert compile_available().why == "MLX_DISABLE_COMPILE is set"


def test_wrong_numbers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    if not compile_available():
        pytest.skip("mx.compile does not work here anyway")
    monkeypatch.setattr(compiler.mx, "compile", lambda function: lambda x: function(x) + 1)
    assert "gives other numbers" in compile_available().why
