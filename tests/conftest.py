"""What all tests share: hypothesis profiles, corpora, the skip of what needs an Apple GPU."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import mlxgpt  # noqa: F401  (before any test imports MLX, which then finds a fast BLAS)

if TYPE_CHECKING:
    from mlxgpt.model import GPT

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


@pytest.fixture(scope="session")
def random_gpt() -> "Callable[..., GPT]":
    """Make a small GPT whose every weight is random, so that no part can be missed unnoticed.

    `random_gpt(seed=1, n_layer=3, ...)`: the fields of `GPTConfig`, with defaults for a tiny one.
    """
    import mlx.core as mx

    from mlxgpt import seeding
    from mlxgpt.model import GPT, GPTConfig

    small = {"n_layer": 2, "n_embd": 32, "n_head": 4, "n_kv_head": 2, "vocab_size": 61}
    small |= {"max_seq_len": 16}

    def make(seed: int = 0, **sizes: Any) -> GPT:
        model = GPT(GPTConfig(**{**small, **sizes}))
        weights = {}
        for name, old in model.weights().items():
            noise = mx.random.normal(old.shape, key=seeding.key(seed, f"test/{name}"))
            if old.ndim == 1:
                weights[name] = 1 + 0.3 * noise
            else:
                weights[name] = noise * (0.5 if "embed" in name else 1.5 * old.shape[-1] ** -0.5)
        model.set_weights(weights)
        mx.eval(model.parameters())
        return model

    return make
