from pathlib import Path

import pytest
from tiny_runs import write_corpus


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoded corpora go into the test's own folder."""
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A text of few words, long enough for some epochs of a tiny run."""
    return write_corpus(tmp_path / "words.txt")
