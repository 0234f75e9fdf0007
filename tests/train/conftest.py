from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoded corpora go into the test's own folder."""
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "cache"))
