"""What a command typed in a test gives, and how a mistake is refused."""

from collections.abc import Callable

Result = tuple[int, str, str]
"""Exit code, stdout, stderr."""
Run = Callable[..., Result]


def refused(result: Result, *words: str) -> None:
    """It left with code 2 and one line that holds all `words`."""
    code, out, err = result
    assert code == 2, err
    lines = [line for line in err.splitlines() if line.startswith("mlxgpt: error: ")]
    assert len(lines) == 1, err
    assert err.endswith(lines[0] + "\n")
    assert "Traceback" not in err
    assert out == ""
    for word in words:
        assert word in lines[0]
