"""What all tests share: hypothesis profiles, corpora, the skip of what needs an Apple GPU."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

import mlxgpt  # noqa: F401  (before any test imports MLX, which then finds a fast BLAS)

settings.register_profile("dev", max_examples=30, deadline=None)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is marked `metal` where there is no Apple GPU."""
    marked = [item for item in items if item.get_closest_marker("metal")]
    if not marked:
        return
    import mlx.core as mx

    if not mx.metal.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an Apple GPU (Metal)"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of larger corpora beside the project; whoever wants it skips where it is not."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the corpora in ../shared/data")
    return folder
