"""(GPT, Tokenizer) -> a model directory in the Hugging Face form, which every other tool opens."""

from pathlib import Path

import mlx.core as mx

from mlxgpt.atomic import new_file, sweep
from mlxgpt.checkpoint.hf.config_writing import to_hf
from mlxgpt.checkpoint.hf.weight_files import INDEX, WEIGHTS, index_of
from mlxgpt.checkpoint.json_file import write_json
from mlxgpt.checkpoint.safetensors import write_tensors
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig, weight_shapes
from mlxgpt.text import Tokenizer


def save_description(
    directory: Path, config: GPTConfig, tokenizer: Tokenizer, dtype: mx.Dtype = mx.float32
) -> None:
    """Write everything of a model directory but the weights, which will be of `dtype`.

    These files do not change in a run. Raises `CheckpointError` when the disk refuses.
    """
    eos = tokenizer.eot_id
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tokenizer.save(directory)
        raw = to_hf(config, bos_token_id=eos, eos_token_ids=eos, dtype=_name_of(dtype))
        write_json(directory / "config.json", raw)
        write_json(directory / "generation_config.json", {"bos_token_id": eos, "eos_token_id": eos})
        write_json(directory / INDEX, index_of(config, dtype))
    except OSError as e:
        raise CheckpointError(f"cannot write into {directory}: {e.strerror or e}") from e


def save_model(directory: str | Path, model: GPT, tokenizer: Tokenizer) -> None:
    """Write a complete model directory; one that is there is replaced.

    The weights are on the disk, under a temporary name, before anything else is touched, and take
    their place last. Weight files of the model that was there before are removed, since other tools
    read all that is called `model*.safetensors`. Raises `CheckpointError` when the disk refuses,
    and for a network that is quantized or has an adapter attached.
    """
    directory = Path(directory)
    weights = model.weights()
    plain = dict(weight_shapes(model.config))
    if strange := next((name for name in weights if name not in plain), None):
        raise CheckpointError(
            f"cannot save this network as it is: {strange!r} belongs to a quantized matrix or an "
            "adapter; `mlxgpt export` writes such models"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        sweep(directory)
        with new_file(directory / WEIGHTS) as temporary:
            write_tensors(temporary, weights)
            dtype = weights["model.embed_tokens.weight"].dtype
            save_description(directory, model.config, tokenizer, dtype)
        for shard in directory.glob("model-*-of-*.safetensors"):
            shard.unlink()
    except (OSError, RuntimeError) as e:
        raise CheckpointError(f"cannot write into {directory}: {e}") from e


def _name_of(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")
