"""Models on disk <-> models that run: what is written here, every Llama-reading tool opens."""

from mlxgpt.checkpoint.adapters import Adapter, attach, fused, read_adapter, write_adapter
from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.checkpoint.checkpoint import Checkpoint, StoredTensor
from mlxgpt.checkpoint.exporting import (
    Outgoing,
    check_new,
    export_directory,
    export_gguf,
    outgoing,
)
from mlxgpt.checkpoint.hf.weight_files import publish_weights
from mlxgpt.checkpoint.json_file import read_json, write_json
from mlxgpt.checkpoint.loading import load, load_model, load_tokenizer, plain_weights
from mlxgpt.checkpoint.model_card import About, model_card
from mlxgpt.checkpoint.opening import open_checkpoint
from mlxgpt.checkpoint.saving import save_description, save_model
from mlxgpt.checkpoint.training_state import TrainingState, load_state, save_state

__all__ = [
    "About",
    "Adapter",
    "BorrowedModel",
    "Checkpoint",
    "Outgoing",
    "StoredTensor",
    "TrainingState",
    "attach",
    "check_new",
    "export_directory",
    "export_gguf",
    "fused",
    "load",
    "load_model",
    "load_state",
    "load_tokenizer",
    "model_card",
    "open_checkpoint",
    "outgoing",
    "plain_weights",
    "publish_weights",
    "read_adapter",
    "read_json",
    "save_description",
    "save_model",
    "save_state",
    "write_adapter",
    "write_json",
]
