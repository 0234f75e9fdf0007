"""A model directory <-> (GPT, Tokenizer): the Hugging Face form that every other tool opens."""

import logging
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.files import read_json, share_file, write_atomic, write_json
from mlxgpt.checkpoint.hf_config import from_hf, stop_ids, to_hf
from mlxgpt.checkpoint.safetensors import read_header, read_tensors, write_tensors
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig
from mlxgpt.text import Tokenizer

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


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
    model = GPT(load_config(directory))
    weights = read_weights(directory, model)
    if mx.default_device().type == mx.DeviceType.cpu:
        half = {n for n, w in weights.items() if w.dtype != mx.float32}
        if half:
            log.warning("weights are computed in float32 here: half precision is slow on a CPU")
            weights = {n: w.astype(mx.float32) for n, w in weights.items()}
    model.set_weights(weights)
    mx.eval(model.parameters())
    return model


def load_config(path: str | Path) -> GPTConfig:
    """Load the shape of the network in a model directory."""
    file = model_directory(path) / "config.json"
    return from_hf(read_json(file), str(file))


def load_stop_ids(path: str | Path) -> frozenset[int]:
    """Return the ids that end a text: those of config.json and of generation_config.json."""
    directory = model_directory(path)
    generation = directory / "generation_config.json"
    extra = read_json(generation) if generation.exists() else {}
    return stop_ids(read_json(directory / "config.json"), extra)


def model_directory(path: str | Path) -> Path:
    """Return `path` as a model directory, or raise `CheckpointError` saying what is missing."""
    directory = Path(path).expanduser()
    if not directory.exists():
        raise CheckpointError(f"{directory} does not exist; expected a model or run directory")
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; expected a model or run directory")
    if not (directory / "config.json").exists():
        raise CheckpointError(f"{directory} is not a model directory: it has no config.json")
    return directory


def read_weights(directory: Path, model: GPT) -> dict[str, mx.array]:
    """Read and check the weights for `model`: every name, shape and dtype, every number finite."""
    files = _weight_files(directory)
    found = {name: (file, info) for file in files for name, info in read_header(file).items()}
    found = {n: v for n, v in found.items() if not n.endswith("rotary_emb.inv_freq")}
    expected = {n: tuple(w.shape) for n, w in model.weights().items()}
    optional = {"lm_head.weight"} if model.config.tie_embeddings else set()
    _refuse("is missing", set(expected) - set(found), directory)
    _refuse("is not part of this model", set(found) - set(expected) - optional, directory)
    for name, (file, info) in found.items():
        want = expected.get(name, expected["model.embed_tokens.weight"])
        if info.shape != want:
            raise CheckpointError(
                f"{file}: '{name}' has shape {list(info.shape)}, config.json asks for {list(want)}"
            )
        if info.dtype not in ("F32", "F16", "BF16"):
            raise CheckpointError(f"{file}: '{name}' has dtype {info.dtype}; expected a float")
    tensors = {n: w for file in files for n, w in read_tensors(file).items() if n in found}
    for name, w in tensors.items():
        if not mx.isfinite(w).all().item():
            raise CheckpointError(f"{found[name][0]}: '{name}' holds NaN or infinite numbers")
    head = tensors.pop("lm_head.weight", None) if model.config.tie_embeddings else None
    if head is not None and not mx.array_equal(head, tensors["model.embed_tokens.weight"]).item():
        raise CheckpointError(
            f"{directory}: config.json ties the embeddings, but lm_head.weight differs from "
            "model.embed_tokens.weight; set tie_word_embeddings to false or drop lm_head.weight"
        )
    return tensors


def _weight_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights: those of the index, else the single one."""
    if not (directory / INDEX).exists():
        return [directory / WEIGHTS]
    weight_map = read_json(directory / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{directory / INDEX} has no 'weight_map'")
    names = sorted({str(n) for n in weight_map.values()})
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"{directory / INDEX} names a file outside its folder: {name!r}")
    absent = [n for n in names if not (directory / n).exists()]
    if absent:
        raise CheckpointError(f"{directory} is incomplete: {', '.join(absent)} is missing")
    return [directory / n for n in names]


def _refuse(what: str, names: set[str], directory: Path) -> None:
    if names:
        shown = ", ".join(sorted(names)[:5]) + (f" and {len(names) - 5} more" * (len(names) > 5))
        raise CheckpointError(f"{directory}: {shown} {what}")


def save_description(directory: Path, config: GPTConfig, tokenizer: Tokenizer) -> None:
    """Write everything of a model directory but the weights. These files do not change in a run."""
    directory.mkdir(parents=True, exist_ok=True)
    eos = tokenizer.eot_id
    tokenizer.save(directory)
    write_json(directory / "config.json", to_hf(config, eos))
    write_json(directory / "generation_config.json", {"bos_token_id": eos, "eos_token_id": eos})
    sizes = {n: w.nbytes for n, w in GPT(config).weights().items()}
    index = {
        "metadata": {"total_size": sum(sizes.values())},
        "weight_map": dict.fromkeys(sorted(sizes), WEIGHTS),
    }
    write_json(directory / INDEX, index)


def save_model(directory: str | Path, model: GPT, tokenizer: Tokenizer) -> None:
    """Write a complete model directory; the weights last, so that a folder with them is whole."""
    directory = Path(directory)
    save_description(directory, model.config, tokenizer)
    write_atomic(directory / WEIGHTS, lambda p: write_tensors(p, model.weights()))


def publish_weights(directory: Path, file: Path) -> None:
    """Make `file` the weights of the model directory, at no cost in disk space where links work."""
    share_file(file, directory / WEIGHTS)
