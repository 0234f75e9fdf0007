"""The house stays readable: one noun a file, no drawers for odds and ends, telling first lines."""

import ast
from pathlib import Path

import pytest

import mlxgpt

PACKAGE = Path(mlxgpt.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 300
DRAWERS = {"utils", "util", "common", "helpers", "helper", "base", "misc", "manager"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_a_module_is_short_named_for_a_noun_and_says_what_it_does(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MOST_LINES, f"{path.name} holds two nouns: part them"
    assert path.stem not in DRAWERS, f"{path.name} says nothing of what is in it"
    docstring = ast.get_docstring(ast.parse(text), clean=False) or ""
    assert docstring.split("\n")[0].strip(), "the first line says what flows through the module"
