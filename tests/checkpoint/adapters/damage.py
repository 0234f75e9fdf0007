"""A sound adapter in either form, ways to damage it, and the one line that it is refused with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from mlxgpt.checkpoint import Adapter, read_adapter
from mlxgpt.checkpoint.adapters import check_fit
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT

Form = tuple[str, Path, GPT]
FILES = {"mlx-lm": "adapters.safetensors", "peft": "adapter_model.safetensors"}
Q1, V0 = "model.layers.1.self_attn.q_proj", "model.layers.0.self_attn.v_proj"
NAMES = {  # of the parts of a module
    "mlx-lm": {"a": "{}.lora_a", "b": "{}.lora_b", "m": "{}.m"},
    "peft": {
        "a": "base_model.model.{}.lora_A.weight",
        "b": "base_model.model.{}.lora_B.weight",
        "m": "base_model.model.{}.lora_magnitude_vector",
    },
}


def change_settings(folder: Path, inside: str | None, **values: Any) -> None:
    file = folder / "adapter_config.json"
    content = json.loads(file.read_text())
    (content if inside is None else content[inside]).update(values)
    file.write_text(json.dumps(content))


def change_tensors(form: Form, change: Callable[[dict[str, mx.array]], object]) -> None:
    file = form[1] / FILES[form[0]]
    tensors = {name: mx.array(np.array(w)) for name, w in mx.load(str(file)).items()}
    change(tensors)
    mx.save_safetensors(str(file), tensors)


def outcome(form: Form) -> Adapter | str:
    """Read an adapter and see whether it fits; return it, or the line that it is refused with."""
    _, folder, model = form
    try:
        adapter = read_adapter(folder)
        check_fit(adapter, model.config)
    except CheckpointError as e:
        message = str(e)
    else:
        return adapter
    assert len(message.splitlines()) == 1
    assert len(message) < 700
    assert folder.name in message
    return message


def refused(form: Form) -> str:
    message = outcome(form)
    assert isinstance(message, str)
    return message
