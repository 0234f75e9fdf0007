"""A folder with an adapter, in mlx-lm's form or in PEFT's <-> `Adapter`."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Literal

from mlxgpt.atomic import new_folder, write_bytes
from mlxgpt.checkpoint.adapters.adapter import EMBEDDING, Adapter
from mlxgpt.checkpoint.adapters.mlx_form import WEIGHTS as MLX_WEIGHTS
from mlxgpt.checkpoint.adapters.mlx_form import read_mlx, to_mlx
from mlxgpt.checkpoint.adapters.peft_form import WEIGHTS as PEFT_WEIGHTS
from mlxgpt.checkpoint.adapters.peft_form import read_peft
from mlxgpt.checkpoint.adapters.peft_out import to_peft
from mlxgpt.checkpoint.adapters.settings import CONFIG, Settings
from mlxgpt.checkpoint.json_file import write_json
from mlxgpt.checkpoint.opening import local_path
from mlxgpt.checkpoint.safetensors import write_tensors
from mlxgpt.errors import CheckpointError

Form = Literal["mlx-lm", "peft"]
TEMPLATE = "chat_template.jinja"
_PICKLES = ("adapter_model.bin", "adapter_model.pt", "adapters.npz")


def read_adapter(path: str | Path) -> Adapter:
    """Read an adapter, of mlx-lm or of PEFT, and check all that can be checked without its base.

    `path` is its folder, or its name on the Hub. A `chat_template.jinja` beside it is read too.
    Whether it fits a network is checked by `check_fit`, and by `attach`. Raises `CheckpointError`.
    """
    directory = local_path(path)
    if not os.path.isdir(directory):
        raise CheckpointError(f"{directory} is a file; expected the folder of an adapter")
    if not os.path.isfile(directory / CONFIG):
        raise CheckpointError(f"{directory} is not an adapter: it has no {CONFIG}")
    settings = Settings.read(directory)
    of_peft = "peft_type" in settings.content
    weights = PEFT_WEIGHTS if of_peft else MLX_WEIGHTS
    if not os.path.isfile(directory / weights):
        for name in _PICKLES:
            if os.path.isfile(directory / name):
                raise CheckpointError(
                    f"{directory / name} is not opened, since such a file may run code: save the "
                    f"adapter again as {weights}"
                )
        raise CheckpointError(f"{directory / weights} is missing")
    adapter = read_peft(directory, settings) if of_peft else read_mlx(directory, settings)
    return replace(adapter, chat_template=_read_template(directory / TEMPLATE))


def _read_template(file: Path) -> str | None:
    if not os.path.lexists(file):
        return None
    try:
        return file.read_text(encoding="utf-8") or None
    except (OSError, ValueError) as e:
        raise CheckpointError(f"{file} cannot be read: {e}") from e


def write_adapter(
    directory: str | Path, adapter: Adapter, form: Form, *, base: str | None = None
) -> None:
    """Write an adapter into a new folder, which appears when it is complete.

    `base` is the name of the model it belongs to; None: as the adapter says. Raises
    `CheckpointError` when the folder is taken, the disk refuses, or the form has no room for it.
    """
    directory = Path(os.path.expanduser(directory))
    if os.path.lexists(directory) and not (directory.is_dir() and not any(directory.iterdir())):
        raise CheckpointError(f"{directory} is there already: give a new folder")
    _check_embedding(adapter, form)
    name = adapter.base if base is None else base
    config, tensors = to_peft(adapter, name) if form == "peft" else to_mlx(adapter, name)
    weights = PEFT_WEIGHTS if form == "peft" else MLX_WEIGHTS
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(directory, same=False) as temporary:
            write_tensors(temporary / weights, dict(sorted(tensors.items())))
            write_json(temporary / CONFIG, dict(sorted(config.items())))
            if adapter.chat_template is not None:
                write_bytes(temporary / TEMPLATE, adapter.chat_template.encode())
    except (OSError, RuntimeError) as e:
        raise CheckpointError(f"cannot write {directory}: {e}") from e


def _check_embedding(adapter: Adapter, form: Form) -> None:
    """Refuse to write what the other tool would compute in another way."""
    change = adapter.modules.get(EMBEDDING)
    if change is None:
        return
    if (form == "mlx-lm") != adapter.head_follows_embedding:
        other = "mlx-lm's form" if form == "mlx-lm" else "PEFT's form"
        raise CheckpointError(
            f"{adapter.source} changes {EMBEDDING}, which in {other} means another thing where "
            "the head is tied to it: fuse it instead"
        )
    if form == "peft" and change.m is not None:
        raise CheckpointError(
            f"{adapter.source}: DoRA of {EMBEDDING} is not written in PEFT's form"
        )
