"""PEFT's two ways to turn alpha into a scale, without PEFT."""

import json
from pathlib import Path

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import Adapter, read_adapter, write_adapter
from mlxgpt.checkpoint.adapters import LowRank

MODULE = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(("stabilized", "scale"), [(False, 24 / 16), (True, 24 / 4)])
def test_alpha_is_divided_by_the_rank_or_its_root(
    stabilized: bool, scale: float, tmp_path: Path
) -> None:
    """Kalajdzievski, 2023: alpha / sqrt(r) keeps the size of the change at any rank r."""
    change = LowRank(a=mx.ones((8, 16)), b=mx.ones((16, 8)), scale=1.0)
    adapter = Adapter(fine_tune_type="lora", modules={MODULE: change})
    write_adapter(tmp_path / "a", adapter, "peft")
    file = tmp_path / "a" / "adapter_config.json"
    settings = json.loads(file.read_text())
    assert settings["r"] == 16
    file.write_text(json.dumps(settings | {"lora_alpha": 24, "use_rslora": stabilized}))
    assert read_adapter(tmp_path / "a").modules[MODULE].scale == pytest.approx(scale)
