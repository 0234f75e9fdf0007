from pathlib import Path

import platformdirs
import pytest

from mlxgpt.machine.cache import cache_dir, folder_size


def test_the_variable_overrides_the_systems_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLXGPT_CACHE", "~/somewhere")
    assert cache_dir() == Path.home() / "somewhere"
    monkeypatch.setenv("MLXGPT_CACHE", "")
    assert cache_dir() == Path(platformdirs.user_cache_dir("mlxgpt", appauthor=False))


def test_the_size_is_that_of_all_files(tmp_path: Path) -> None:
    assert folder_size(tmp_path / "absent") == 0
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"12345")
    (tmp_path / "c").write_bytes(b"123")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert folder_size(tmp_path) == 8 + len(str(tmp_path / "nowhere"))
