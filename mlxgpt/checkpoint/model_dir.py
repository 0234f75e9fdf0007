"""A model directory <-> (GPT, Tokenizer): the Hugging Face form that every other tool opens."""

import logging
import os
from pathlib import Path

import mlx.core as mx

from mlxgpt.atomic import new_file, sweep
from mlxgpt.checkpoint.hf_config import from_hf, stop_ids, to_hf
from mlxgpt.checkpoint.json_file import read_json, write_json
from mlxgpt.checkpoint.safetensors import write_tensors
from mlxgpt.checkpoint.weight_files import INDEX, WEIGHTS, index_of, read_weights
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig
from mlxgpt.text import Tokenizer

log = logging.getLogger(__name__)


def load(path: str | Path) -> tuple[GPT, Tokenizer]:
    """Load a model directory: the network, ready to run, and its tokenizer.

    On a CPU device half-precision weights become float32, since MLX computes those tens of times
    faster there; elsewhere they stay as stored. Raises `CheckpointError` or `TokenizerError`
    naming the file and what is wrong with it.
    """
    directory = model_directory(path)
    tokenizer = Tokenizer.load(directory)
    model = load_model(directory)
    if tokenizer.vocab_size > model.config.vocab:
        raise CheckpointError(
            f"{directory}: the tokenizer has {tokenizer.vocab_size} ids, the model only "
            f"{model.config.vocab}; they do not belong together"
        )
    return model, tokenizer


def load_model(path: str | Path) -> GPT:
    """Load the network of a model directory, without its tokenizer."""
    directory = model_directory(path)
    config = load_config(directory)
    weights = read_weights(directory, config)
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    if on_cpu and any(w.dtype != mx.float32 for w in weights.values()):
        log.warning("weights are computed in float32 here: half precision is slow on a CPU")
        weights = {n: w.astype(mx.float32) for n, w in weights.items()}
    model = GPT(config)
    model.set_weights(weights)
    mx.eval(model.parameters())
    return model


def load_config(path: str | Path) -> GPTConfig:
    """Load the shape of the network in a model directory."""
    file = model_directory(path) / "config.json"
    return from_hf(read_json(file), str(file))


def load_stop_ids(path: str | Path) -> frozenset[int]:
    """Return the ids that end a text: those of config.json and of generation_config.json.

    Raises `CheckpointError` if one of them says it in a way that has no meaning.
    """
    directory = model_directory(path)
    ids: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        file = directory / name
        if name == "config.json" or os.path.lexists(file):
            ids |= stop_ids(read_json(file), str(file))
    return frozenset(ids)


def model_directory(path: str | Path) -> Path:
    """Return `path` as a model directory, or raise `CheckpointError` saying what is missing."""
    directory = Path(os.path.expanduser(path))
    if not os.path.exists(directory):
        raise CheckpointError(f"{directory} does not exist; expected a model or run directory")
    if not os.path.isdir(directory):
        raise CheckpointError(f"{directory} is a file; expected a model or run directory")
    if not os.path.isfile(directory / "config.json"):
        raise CheckpointError(f"{directory} is not a model directory: it has no config.json")
    return directory


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
        write_json(directory / "config.json", to_hf(config, eos, _name_of(dtype)))
        write_json(directory / "generation_config.json", {"bos_token_id": eos, "eos_token_id": eos})
        write_json(directory / INDEX, index_of(config, dtype))
    except OSError as e:
        raise CheckpointError(f"cannot write into {directory}: {e.strerror or e}") from e


def save_model(directory: str | Path, model: GPT, tokenizer: Tokenizer) -> None:
    """Write a complete model directory; one that is there is replaced.

    The weights are on the disk, under a temporary name, before anything else is touched, and take
    their place last. Weight files of the model that was there before are removed, since other tools
    read all that is called `model*.safetensors`. Raises `CheckpointError` when the disk refuses.
    """
    directory = Path(directory)
    weights = model.weights()

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
