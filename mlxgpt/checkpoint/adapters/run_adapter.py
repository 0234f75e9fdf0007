"""What stands beside the weights of an adapter that is being trained, written once."""

from dataclasses import replace
from pathlib import Path

from mlxgpt.checkpoint.adapters.adapter import Adapter
from mlxgpt.checkpoint.adapters.mlx_form import to_mlx
from mlxgpt.checkpoint.adapters.settings import CONFIG
from mlxgpt.checkpoint.json_file import write_json


def describe_adapter(directory: Path, adapter: Adapter, base: str, fingerprint: str) -> None:
    """Write the settings of `adapter` as mlx-lm has them, for the weights that training gives.

    Those have the names and shapes of the ones in `adapter`: of its low-rank parts
    `PATH.lora_a` and so on. `base` is its base as the user called it, `fingerprint` that of
    `base_fingerprint`. Raises `OSError` when the disk refuses.
    """
    config, _ = to_mlx(replace(adapter, base_fingerprint=fingerprint), base)
    write_json(directory / CONFIG, dict(sorted(config.items())))
