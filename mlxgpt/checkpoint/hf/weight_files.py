"""The weight files of a model directory -> arrays, after a check against its config.

One `model.safetensors`, or the shards that `model.safetensors.index.json` names; never whatever
else ends in `.safetensors`, which may be an adapter or a copy in another precision.
"""

import logging
import os
from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.atomic import share_file, sweep
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.checkpoint.safetensors import TensorInfo, read_header, read_tensors
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, num_parameters, weight_shapes

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_FLOATS = {"F32": 4, "F16": 2, "BF16": 2}
_SHOWN = 5


def read_weights(directory: Path, config: GPTConfig) -> dict[str, mx.array]:
    """Read the weights of the network that `config` describes, in the precision of the files.

    Every name, shape, dtype and number is checked, the cheap things first. Raises `CheckpointError`
    naming the file, or the tensors that are missing or not expected.
    """
    files = _weight_files(directory)
    found = _headers(directory, files)
    missing = list(islice((n for n, _ in weight_shapes(config) if n not in found), _SHOWN + 1))
    _refuse("missing", missing, directory)
    shapes = dict(weight_shapes(config))  # no more than there are in the files
    if config.tie_embeddings:
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    _refuse("not part of this model", sorted(set(found) - set(shapes)), directory)
    for name, (file, info) in found.items():
        if info.shape != shapes[name]:
            raise CheckpointError(
                f"{file}: {name!r} has shape {list(info.shape)}, config.json asks for "
                f"{list(shapes[name])}"
            )
        if info.dtype not in _FLOATS:
            raise CheckpointError(
                f"{file}: {name!r} has dtype {info.dtype}; expected {', '.join(_FLOATS)}"
            )
    tensors = {n: w for file in files for n, w in read_tensors(file).items() if n in found}
    for name, w in tensors.items():
        if not mx.isfinite(w).all().item():
            raise CheckpointError(f"{found[name][0]}: {name!r} holds NaN or infinite numbers")
    head = tensors.pop("lm_head.weight", None) if config.tie_embeddings else None
    if head is not None and not mx.array_equal(head, tensors["model.embed_tokens.weight"]).item():
        raise CheckpointError(
            f"{directory}: config.json ties the embeddings, but lm_head.weight differs from "
            "model.embed_tokens.weight; set tie_word_embeddings to false or drop lm_head.weight"
        )
    return tensors


def publish_weights(directory: Path, file: Path) -> None:
    """Make `file` the weights of the model directory, at no cost in disk space where links work.

    Raises `CheckpointError` when the disk refuses; the weights that were there stay.
    """
    try:
        sweep(directory)
        share_file(file, directory / WEIGHTS)
    except OSError as e:
        raise CheckpointError(
            f"cannot write {directory / WEIGHTS}: {e.strerror or e}; what was there is untouched"
        ) from e


def index_of(config: GPTConfig, dtype: mx.Dtype) -> dict[str, Any]:
    """Return the content of the index for one file that holds all weights in `dtype`."""
    return {
        "metadata": {"total_size": num_parameters(config) * dtype.size},
        "weight_map": {name: WEIGHTS for name, _ in sorted(weight_shapes(config))},
    }


def _headers(directory: Path, files: list[Path]) -> dict[str, tuple[Path, TensorInfo]]:
    """Return name -> (file, header entry). A tensor that stands in two files is refused."""
    found: dict[str, tuple[Path, TensorInfo]] = {}
    for file in files:
        for name, info in read_header(file).items():
            if name.endswith("rotary_emb.inv_freq"):  # old files hold it; it follows from config
                continue
            if name in found:
                raise CheckpointError(
                    f"{directory}: {name!r} stands in {found[name][0].name} and in {file.name}"
                )
            found[name] = file, info
    return found


def _weight_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights: those of the index, else the single one."""
    if not os.path.lexists(directory / INDEX):
        names = [WEIGHTS]
    else:
        weight_map = read_json(directory / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{directory / INDEX} has no 'weight_map'")
        names = sorted({str(n) for n in weight_map.values()})
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(
                    f"{directory / INDEX} names a file outside its folder: {name!r}"
                )
    # os.path.isfile says no, where Path.exists raises, for a name that no file can have
    _refuse("missing", [n for n in names if not os.path.isfile(directory / n)], directory)
    stray = sorted(f.name for f in directory.glob("*.safetensors") if f.name not in names)
    if stray:
        log.warning("%s: not part of the model and not read: %s", directory, ", ".join(stray))
    return [directory / n for n in names]


def _refuse(what: str, names: list[str], directory: Path) -> None:
    if names:
        shown = ", ".join(map(repr, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)
        raise CheckpointError(f"{directory}: {what}: {shown}")
