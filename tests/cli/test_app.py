"""The command as a whole: quick help, versions, and one line for whatever is typed wrong."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mlxgpt

COMMAND = [sys.executable, "-c", "from mlxgpt.cli.app import main; main()"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache of one's own, in which a fast BLAS has been prepared already."""
    cache = tmp_path_factory.mktemp("cache")
    variables = {**os.environ, "MLXGPT_CACHE": str(cache), "COLUMNS": "80"}
    subprocess.run([*COMMAND, "--version"], env=variables, check=True, capture_output=True)
    return variables


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_help_lists_every_command_on_a_line_of_its_own(environment: dict[str, str]) -> None:
    from typer.main import get_command

    from mlxgpt.cli.app import app

    result = run(environment, "--help")
    assert result.returncode == 0
    assert result.stderr == ""
    lines = result.stdout.split("Commands:\n")[1].splitlines()
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert [line.split()[0] for line in lines] == list(commands)
    assert all(line.endswith(".") and not line.endswith("..") for line in lines)
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert run(environment).stdout == result.stdout


def test_help_of_each_command_fits_80_columns(environment: dict[str, str]) -> None:
    for command in (["train"], ["generate"], ["doctor"], ["tokenizer"], ["tokenizer", "train"]):
        result = run(environment, *command, "--help")
        assert result.returncode == 0
        assert max(map(len, result.stdout.splitlines())) <= 80


def test_help_answers_at_once_and_without_mlx(environment: dict[str, str]) -> None:
    def seconds() -> float:
        start = time.perf_counter()
        run(environment, "--help")
        return time.perf_counter() - start

    assert min(seconds() for _ in range(3)) < 0.5
    loaded = (
        "import sys\nfrom mlxgpt.cli.app import main\nsys.argv = ['mlxgpt', '--help']\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = {'mlx', 'mlx.core', 'numba', 'matplotlib', 'yaml', 'rich', 'torch'}\n"
        "    print(heavy & set(sys.modules), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", loaded], env=environment, capture_output=True, text=True
    )
    assert result.stderr == "set()\n"


def test_version(environment: dict[str, str]) -> None:
    result = run(environment, "--version")
    assert (result.returncode, result.stdout) == (0, f"mlxgpt {mlxgpt.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], ["No such command 'trian'", "train"]),
        (["--verbos"], ["--verbos"]),
        (["train", "--stepps", "3"], ["--stepps", "--steps"]),
        (["train", "--steps", "three"], ["--steps"]),
        (["train", "--steps"], ["--steps"]),
        (["tokenizer", "tain"], ["No such command 'tain'"]),
        (["generate"], ["Missing argument"]),
        (["train", "--out", "x"], ["no corpus"]),
    ],
    ids=" ".join,
)
def test_a_mistake_is_one_line_with_code_2(
    environment: dict[str, str], tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    result = run(environment, *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("mlxgpt: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    for word in words:
        assert word in result.stderr


def test_a_command_group_alone_shows_its_help(environment: dict[str, str]) -> None:
    result = run(environment, "tokenizer")
    assert result.returncode == 0
    assert "Commands:" in result.stdout


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from mlxgpt.cli import app as module

    def no_room(standalone_mode: bool) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "metrics.jsonl"))

    def broken(standalone_mode: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "app", no_room)
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code == 2
    expected = f"mlxgpt: error: {tmp_path / 'metrics.jsonl'}: No space left on device\n"
    assert capsys.readouterr().err == expected
    monkeypatch.setattr(module, "app", broken)
    with pytest.raises(ZeroDivisionError):  # our own fault keeps its traceback
        module.main()
