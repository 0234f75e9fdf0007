from collections.abc import Callable
from pathlib import Path

import pytest
from damage import FILES, Form, change_settings
from random_adapters import QUERIES, paths, random_adapter

from mlxgpt.checkpoint import write_adapter
from mlxgpt.model import GPT


@pytest.fixture(params=FILES)
def form(request: pytest.FixtureRequest, tmp_path: Path, random_gpt: Callable[..., GPT]) -> Form:
    """(name of the form, a sound adapter in it, the network that it is for)."""
    model = random_gpt()
    adapter = random_adapter(model.config, paths([0, 1], QUERIES))
    write_adapter(tmp_path / "adapter", adapter, request.param)
    if request.param == "mlx-lm":  # as its own tuner writes it
        change_settings(tmp_path / "adapter", "lora_parameters", keys=list(QUERIES))
        change_settings(tmp_path / "adapter", None, num_layers=2)
    return request.param, tmp_path / "adapter", model
