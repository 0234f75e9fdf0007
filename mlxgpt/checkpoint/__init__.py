"""Models on disk <-> models that run: what is written here, every Llama-reading tool opens."""

from mlxgpt.checkpoint.checkpoint import Checkpoint, StoredTensor
from mlxgpt.checkpoint.hf.weight_files import publish_weights
from mlxgpt.checkpoint.json_file import read_json, write_json
from mlxgpt.checkpoint.loading import load, load_model, load_tokenizer, plain_weights
from mlxgpt.checkpoint.opening import open_checkpoint
from mlxgpt.checkpoint.saving import save_description, save_model
from mlxgpt.checkpoint.training_state import TrainingState, load_state, save_state

__all__ = [
    "Checkpoint",
    "StoredTensor",
    "TrainingState",
    "load",
    "load_model",
    "load_state",
    "load_tokenizer",
    "open_checkpoint",
    "plain_weights",
    "publish_weights",
    "read_json",
    "save_description",
    "save_model",
    "save_state",
    "write_json",
]
