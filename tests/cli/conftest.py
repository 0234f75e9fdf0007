"""The command line in this process, in an empty folder."""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typed_commands import Result, Run

from mlxgpt.cli import app as app_module


@pytest.fixture
def mlxgpt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Return a function that runs the command in an empty folder: (exit code, stdout, stderr)."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MLX_DISABLE_COMPILE", "1")
    monkeypatch.setattr("mlxgpt.train.environment.measure_gemm", lambda _: 50.0)
    log = logging.getLogger("mlxgpt")
    handlers = list(log.handlers)

    def run(*arguments: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", ["mlxgpt", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as caught:
            app_module.main()
        log.handlers[:] = handlers
        out, err = capfd.readouterr()
        return int(caught.value.code or 0), out, err

    yield run
    log.handlers[:] = handlers
