"""A base and what of it is to change -> a network of which that part is trained, and its files."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxgpt.atomic import write_bytes
from mlxgpt.checkpoint import Adapter, BorrowedModel, Checkpoint, attach, load_model, write_json
from mlxgpt.checkpoint.adapters.base_fingerprint import base_fingerprint
from mlxgpt.checkpoint.adapters.fresh import fresh_adapter, train_only, trained_names
from mlxgpt.checkpoint.adapters.run_adapter import describe_adapter
from mlxgpt.checkpoint.description import write_description
from mlxgpt.checkpoint.hf.weight_files import INDEX, index_of
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer
from mlxgpt.text.chat_template import ChatTemplate
from mlxgpt.train.sft.config import TuningConfig


@dataclass(frozen=True)
class Tuned:
    """A network with its first weights; what is not frozen in it is trained."""

    model: GPT
    base: str
    """The base, as the user gave it."""
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    fingerprint: str
    """Names the base by its weights."""
    adapter: Adapter | None
    """What is written beside the trained weights; None: the whole model is trained and shown."""
    template: ChatTemplate | None
    """A chat template to be written too; None: that of the base, if it has one, stays."""

    @property
    def shows(self) -> str:
        """Under which name the trained weights are shown."""
        return "model.safetensors" if self.adapter is None else "adapters.safetensors"

    @property
    def num_trained(self) -> int:
        """Number of weights that are trained."""
        trained = cast(list[tuple[str, mx.array]], tree_flatten(self.model.trainable_parameters()))
        return sum(weight.size for _, weight in trained)

    def describe_into(self, directory: Path) -> None:
        """Write what stands beside the weights. Raises `CheckpointError`."""
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if self.adapter is not None:
                describe_adapter(directory, self.adapter, self.base, self.fingerprint)
            else:
                end = self.template and self.template.end_of_turn(self.tokenizer)
                more = () if end is None else (end,)
                write_description(directory, self.checkpoint, self.tokenizer, more_stop_ids=more)
                write_json(directory / INDEX, index_of(self.model.config, mx.float32))
            if self.template is not None:
                write_bytes(directory / "chat_template.jinja", self.template.source.encode())
        except OSError as e:
            raise CheckpointError(f"cannot write into {directory}: {e.strerror or e}") from e


def tune(
    base: str,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    config: TuningConfig,
    seed: int,
) -> Tuned:
    """Load the base and make of it what `config` asks for.

    A quantized base stays so on a GPU, with changes beside it; on a CPU device it is unpacked.
    `template` is one that the base does not bring. Raises `CheckpointError` and `ConfigError`.
    """
    model = load_model(checkpoint)
    if isinstance(model, BorrowedModel):
        raise CheckpointError(
            f"{base}: a network of type {model.model_type!r} is not fine-tuned here; "
            "mlx_lm.lora does that"
        )
    fingerprint = base_fingerprint(model)
    if config.method != "full":
        adapter = fresh_adapter(
            model,
            method=config.method,
            rank=config.rank or 0,
            scale=config.scale or 0.0,
            dropout=config.dropout or 0.0,
            num_layers=config.num_layers,
            targets=config.targets,
            seed=seed,
        )
        attach(model, adapter)
    else:
        if any(name.endswith(".scales") for name in model.weights()):
            raise ConfigError(
                f"{base} is quantized, and packed weights cannot be trained: choose --method lora, "
                "or unpack it with `mlxgpt export --dtype float32`"
            )
        adapter = train_only(model, trained_names(model.config, config.num_layers))
    return Tuned(model, base, checkpoint, tokenizer, fingerprint, adapter, template)
