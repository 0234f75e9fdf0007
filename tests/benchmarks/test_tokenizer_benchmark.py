"""`python -m benchmarks.tokenizer --quick` runs to its end, and all libraries give the same ids."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

ROOT = Path(__file__).parents[2]
OTHERS = "Все люди рождаются свободными. 人人生而自由。 सभी मनुष्यों को गौरव प्राप्त है।\n"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "MLXGPT_BENCH_TEXT": ""}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def row(output: str, name: str, column: int = -1) -> str:
    """Return a cell of the first row of that name."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines()]
    found = [cells[column] for cells in lines if cells and cells[0] == name]
    assert found, output
    return found[0]


@pytest.mark.slow
def test_the_quick_run_measures_every_part(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text(OTHERS * 1000, encoding="utf-8")
    results = ROOT / "benchmarks" / "results" / "results.jsonl"
    before = results.stat().st_size if results.exists() else 0
    done = run("benchmarks.tokenizer", "--quick", "--text-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    for text in ("Python files", "STAND-IN: docstrings", "own.txt"):
        assert done.stdout.count(f"text: {text}") == 3, text
    assert "DIFFER" not in done.stdout
    # In training some libraries read on one thread and count on another, more or less at once.
    encoding, training, _ = done.stdout.partition("\ntraining, ")
    assert training
    assert "UNFAIR" not in encoding
    assert row(done.stdout, "mlxgpt, compiled") == row(done.stdout, "mlxgpt, plain") == "equal"
    assert row(done.stdout, "two threads") == "equal"
    assert row(done.stdout, "mlxgpt") == "all 744"
    times = [float(row(done.stdout, cache, 1)) for cache in ("empty", "full")]
    assert times[0] > times[1], "nothing was compiled, or nothing kept"
    assert (results.stat().st_size if results.exists() else 0) == before, "quick figures were kept"


def test_a_folder_that_is_none_is_named() -> None:
    done = run("benchmarks.tokenizer", "--text-dir", "no/such/folder")
    assert done.returncode == 2
    assert "no/such/folder is not a folder" in done.stderr
