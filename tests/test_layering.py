"""Imports point one way: a folder may import only what stands before it on a token's path."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlxgpt

PACKAGE = Path(mlxgpt.__file__).parent

ROOT = {"errors", "config", "seeding", "atomic"}  # importable by all, import nothing of ours

# What each part may import of ours, beside itself and the root modules.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "atomic": set(),
    "config": {"errors"},
    "seeding": {"errors"},
    "machine": set(),
    "text": {"machine"},
    "model": {"machine"},
    "data": {"machine", "text"},
    "checkpoint": {"machine", "text", "model"},
    "infer": {"machine", "model"},
    "train": {"machine", "text", "data", "model", "checkpoint"},
    "serve": {"machine", "text", "checkpoint", "infer"},
}
ALL_MEET = {"cli", "__init__", "__main__"}

NO_MLX = {"errors", "config", "atomic", "text"}
# Pure Python, so that their invariants can be tested over very many random operations.
NO_MLX_FILES = {
    *(f"infer/engine/{name}.py" for name in ("scheduler", "room", "queue", "step_copies")),
    *(f"infer/engine/{name}.py" for name in ("sequence", "settings", "statistics")),
    *(f"infer/paged/{name}.py" for name in ("blocks", "free_space", "holders", "placement")),
    *(f"infer/paged/{name}.py" for name in ("prefix_index", "tidying")),
    *(f"infer/speculative/{name}.py" for name in ("draft_costs", "draft_length")),
    *(f"infer/sampling/{name}.py" for name in ("context", "params", "stop_text")),
}


def modules() -> Iterator[tuple[str, Path]]:
    """Yield (part, file) of every module, where the part is a folder or a root module."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path


def imported(path: Path, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield (absolute module name, line) of every import, also inside functions."""
    package = ["mlxgpt", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from mlxgpt import text` imports a module, `from mlxgpt import load` a name.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def violations(part: str, path: Path, source: str) -> list[str]:
    file = path.relative_to(PACKAGE).as_posix()
    no_mlx = part in NO_MLX or file in NO_MLX_FILES
    wrong = []
    for name, line in imported(path, ast.parse(source)):
        if name.startswith("mlxgpt.") and part not in ALL_MEET:
            target = name.split(".")[1]
            known = target in MAY_IMPORT or target in ALL_MEET
            allowed = MAY_IMPORT[part] | {part} | (set() if part in ROOT else ROOT)
            if known and target not in allowed:
                wrong.append(f"{file}:{line}: {part} must not import {target}")
        if no_mlx and (name + ".").startswith(("mlx.", "mlx_lm.")):
            wrong.append(f"{file}:{line}: {part} must not import mlx")
    return wrong


def test_every_folder_has_its_place() -> None:
    assert {part for part, _ in modules()} <= MAY_IMPORT.keys() | ALL_MEET


@pytest.mark.parametrize("part", sorted({part for part, _ in modules()} - ALL_MEET))
def test_imports_point_one_way(part: str) -> None:
    wrong = {
        line
        for other, path in modules()
        if other == part
        for line in violations(part, path, path.read_text(encoding="utf-8"))
    }
    assert not wrong, "\n".join(sorted(wrong))


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("model/gpt.py", "from mlxgpt.text.tokenizer import Tokenizer"),
        ("model/gpt.py", "def f():\n    import mlxgpt.data.batch"),
        ("model/gpt.py", "from ..data import batch"),
        ("model/gpt.py", "from .. import text"),
        ("model/gpt.py", "from mlxgpt import data"),
        ("infer/engine.py", "from mlxgpt.train.trainer import Trainer"),
        ("machine/blas.py", "import mlxgpt.model"),
        ("errors.py", "import mlxgpt.config"),
        ("text/bpe.py", "import mlx.core as mx"),
        ("text/bpe.py", "from mlx import core"),
        ("infer/engine/scheduler.py", "import mlx"),
        ("train/trainer.py", "from mlxgpt.cli import app"),
    ],
)
def test_the_rule_finds_what_it_forbids(file: str, source: str) -> None:
    part = file.split("/")[0].removesuffix(".py")
    assert len(violations(part, PACKAGE / file, source)) == 1


def test_the_rule_allows_what_is_allowed() -> None:
    source = "from mlxgpt.model.gpt import GPT\nfrom mlxgpt.errors import DataError\nimport mlx.nn"
    assert violations("infer", PACKAGE / "infer/engine.py", source) == []
    assert violations("text", PACKAGE / "text/a.py", "import mlxgpt.text.b, mlxlike") == []
