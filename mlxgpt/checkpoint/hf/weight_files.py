"""The weight files of a model directory: which they are, and what their headers say.

One `model.safetensors`, or the shards that `model.safetensors.index.json` names; never whatever
else ends in `.safetensors`, which may be an adapter or a copy in another precision.
"""

import logging
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.atomic import share_file, sweep
from mlxgpt.checkpoint.hf.stored_tensors import Headers, expected_tensors
from mlxgpt.checkpoint.hf.unfinished import (
    refuse_other_weights,
    refuse_placeholder,
    why_incomplete,
)
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.checkpoint.safetensors import TensorInfo, read_header
from mlxgpt.errors import CheckpointError, one_line
from mlxgpt.model import GPTConfig, Quantization

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_headers(directory: Path) -> Headers:
    """Return name -> (file, header entry) of all stored tensors.

    Raises `CheckpointError` for a file that is missing, cut off or no weight file, and for a tensor
    that stands in two files.
    """
    found: dict[str, tuple[Path, TensorInfo]] = {}
    for file in _weight_files(directory):
        refuse_placeholder(file)
        for name, info in read_header(file).items():
            if name.endswith("rotary_emb.inv_freq"):  # old files hold it; it follows from config
                continue
            if name in found:
                raise CheckpointError(
                    f"{directory}: {name!r} stands in {found[name][0].name} and in {file.name}"
                )
            found[name] = file, info
    return found


def publish_weights(shown: Path, file: Path) -> None:
    """Make `shown` another name of `file`, at no cost in disk space where links work.

    Raises `CheckpointError` when the disk refuses; the weights that were there stay.
    """
    try:
        sweep(shown.parent)
        share_file(file, shown)
    except OSError as e:
        raise CheckpointError(
            f"cannot write {shown}: {e.strerror or e}; what was there is untouched"
        ) from e


def index_of(
    config: GPTConfig, dtype: mx.Dtype, quantization: Mapping[str, Quantization] | None = None
) -> dict[str, Any]:
    """Return the content of the index for one file that holds all weights.

    What is not quantized, and the scales of what is, are in `dtype`.
    """
    sizes = {"U32": 4, "U8": 1}
    tensors = dict(expected_tensors(config, quantization or {}))
    total = sum(prod(t.shape) * sizes.get(t.dtypes[0], dtype.size) for t in tensors.values())
    return {
        "metadata": {"total_size": total},
        "weight_map": dict.fromkeys(sorted(tensors), WEIGHTS),
    }


def _weight_files(directory: Path) -> list[Path]:
    """Return the files that hold the weights: those of the index, else the single one."""
    if not os.path.lexists(directory / INDEX):
        names = [WEIGHTS]
    else:
        refuse_placeholder(directory / INDEX)
        weight_map = read_json(directory / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise CheckpointError(f"{directory / INDEX} has no 'weight_map'")
        names = sorted({str(n) for n in weight_map.values()})
        for name in names:
            if Path(name).name != name:
                raise CheckpointError(
                    f"{directory / INDEX} names a file outside its folder: "
                    f"{one_line(repr(name), 80)}"
                )
    # os.path.isfile says no, where Path.exists raises, for a name that no file can have
    missing = [n for n in names if not os.path.isfile(directory / n)]
    if missing:
        hint = why_incomplete(directory)
        if not hint and len(missing) == len(names):
            refuse_other_weights(directory)
        if not hint and len(names) > 1:
            hint = "; the model is not complete: download it again"
        shown = ", ".join(one_line(repr(n), 160) for n in missing[:5])
        shown += ", ..." * (len(missing) > 5)
        raise CheckpointError(f"{directory}: missing: {shown}{hint}")
    stray = sorted(f.name for f in directory.glob("*.safetensors") if f.name not in names)
    if stray:
        log.warning("%s: not part of the model and not read: %s", directory, ", ".join(stray))
    return [directory / n for n in names]
