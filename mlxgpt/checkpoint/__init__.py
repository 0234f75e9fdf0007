"""Directories <-> models: what is written here, every Llama-reading tool opens."""

from mlxgpt.checkpoint.json_file import read_json, write_json
from mlxgpt.checkpoint.model_dir import (
    load,
    load_config,
    load_model,
    load_stop_ids,
    model_directory,
    save_description,
    save_model,
)
from mlxgpt.checkpoint.training_state import TrainingState, load_state, save_state
from mlxgpt.checkpoint.weight_files import publish_weights, read_weights

__all__ = [
    "TrainingState",
    "load",
    "load_config",
    "load_model",
    "load_state",
    "load_stop_ids",
    "model_directory",
    "publish_weights",
    "read_json",
    "read_weights",
    "save_description",
    "save_model",
    "save_state",
    "write_json",
]
