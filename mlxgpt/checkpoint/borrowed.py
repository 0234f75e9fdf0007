"""A model of an architecture that is not ours -> a network of mlx-lm, to generate from.

mlx-lm trusts what it reads: it takes every file called `model*.safetensors`, and a config may name
code to run. So what can be checked without it is checked first, and it is shown a folder with the
checked files and the config in it, and nothing else.
"""

import contextlib
import importlib
import importlib.util
import io
import json
import logging
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten

from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.finite import all_finite
from mlxgpt.checkpoint.hf.weight_files import read_headers
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.checkpoint.shape import foreign_shape
from mlxgpt.errors import CheckpointError, one_line
from mlxgpt.machine.interrupts import held_interrupts

log = logging.getLogger(__name__)

_DEPTHS = ("layers", "n_layer", "depth")
_SHOWN = 300
"""Characters of another library's message that are shown."""


@final
class BorrowedModel:
    """A network of mlx-lm: ids -> logits, and texts over its own cache.

    It does what generation and evaluation need; it is no `GPT`.
    """

    def __init__(self, network: nn.Module, model_type: str, context: int | None) -> None:
        self.network = network
        self.model_type = model_type
        self.context = context
        # Nothing is computed; what a pass over two tokens asks of the config is looked at.
        self._vocab = self(mx.zeros((1, 2), dtype=mx.int32)).shape[-1]

    @property
    def vocab(self) -> int:
        """Number of ids V."""
        return self._vocab

    @property
    def longest(self) -> int | None:
        """How many tokens a text may have: `context`, since not every position has a meaning, or
        even a place in memory, beyond it. None: the config does not say."""
        return self.context

    def __call__(self, input_ids: mx.array) -> mx.array:
        """Return logits (B, T, V) for ids (B, T), which must lie in [0, V)."""
        return self.network(input_ids)

    def session(self) -> "BorrowedSession":
        """Start a text over a new cache."""
        return BorrowedSession(self.network)


@final
class BorrowedSession:
    """A text over the cache that mlx-lm makes for this network."""

    piece = 512

    def __init__(self, network: nn.Module) -> None:
        from mlx_lm.models.cache import make_prompt_cache

        self._network = network
        self._cache = make_prompt_cache(network)

    def feed(self, input_ids: mx.array) -> None:
        """Take in ids (1, T)."""
        self._network(input_ids, cache=self._cache)  # the head is never computed
        mx.eval([layer.state for layer in self._cache])

    def logits(self, input_ids: mx.array) -> mx.array:
        """Take in ids (1, T) and return the logits (1, V) after the last one, not evaluated."""
        return self._network(input_ids, cache=self._cache)[:, -1]


def borrow(checkpoint: Checkpoint, *, as_stored: bool) -> BorrowedModel:
    """Load a model of another architecture by mlx-lm, in stored precision or in float32.

    Raises `CheckpointError` if mlx-lm does not know the architecture either, or for a folder that
    is incomplete or damaged.
    """
    path, model_type = checkpoint.path, one_line(checkpoint.family, 80)
    if checkpoint.format != "safetensors":
        raise CheckpointError(
            f"{path}: architecture {model_type!r} is not mlxgpt's own, and mlx-lm, which runs "
            f"others, reads no {checkpoint.format}; take the model's safetensors"
        )
    if not knows(model_type):
        raise CheckpointError(
            f"{path}: neither mlxgpt nor mlx-lm knows architecture {model_type!r}"
        )
    raw = read_json(path / "config.json")
    if raw.get("model_file") is not None:
        raise CheckpointError(
            f"{path}: config.json asks to run code of its own ('model_file'), which is never done"
        )
    headers = read_headers(path)
    _check_depth(raw, len(headers), path)
    with _told_apart(path, model_type), tempfile.TemporaryDirectory() as folder:
        for i, file in enumerate(sorted({file for file, _ in headers.values()})):
            (Path(folder) / f"model-{i:05}.safetensors").symlink_to(file.resolve())
        (Path(folder) / "config.json").write_text(json.dumps(in_old_words(raw)), encoding="utf-8")
        network = _load(Path(folder))
        _settle(network, path, as_stored=as_stored)
        model = BorrowedModel(network, model_type, foreign_shape(raw).context)
    log.warning(
        "%s is not an architecture of mlxgpt's own and is run by mlx-lm: it can be generated from "
        "and evaluated, but not trained, exported or given an adapter",
        model_type,
    )
    return model


def knows(model_type: str) -> bool:
    """Return whether mlx-lm has this architecture. It is a file name: mlx-lm looks for a module."""
    with held_interrupts():
        from mlx_lm.utils import MODEL_REMAPPING

    name = MODEL_REMAPPING.get(model_type, model_type)
    if not re.fullmatch(r"[\w-]+", name) or not importlib.util.find_spec(f"mlx_lm.models.{name}"):
        return False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            module = importlib.import_module(f"mlx_lm.models.{name}")
    except (ImportError, SystemExit):  # one of them leaves Python where a package is missing
        return False
    return {"Model", "ModelArgs"} <= vars(module).keys()


def in_old_words(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config with its settings also where mlx-lm looks for them.

    transformers 5 writes rotary settings into `rope_parameters` only, and most of mlx-lm's networks
    read `rope_theta` and `rope_scaling`, and take a default where these are missing.
    """
    config = dict(raw)
    if isinstance(inner := config.get("text_config"), dict):
        config["text_config"] = in_old_words(inner)
    new: dict[str, Any] = {
        "n_ctx": config.get("n_positions"),
        "num_experts": config.get("num_local_experts"),
        "sliding_window_pattern": _period(config.get("layer_types")),
    }
    if isinstance(rope := config.get("rope_parameters"), dict):
        full, sliding = rope.get("full_attention"), rope.get("sliding_attention")
        rope = full if isinstance(full, dict) else rope
        new["rope_theta"] = new["rotary_emb_base"] = rope.get("rope_theta")
        new["partial_rotary_factor"] = new["rotary_pct"] = rope.get("partial_rotary_factor")
        new["rope_local_base_freq"] = dict(sliding or {}).get("rope_theta")
        if (kind := rope.get("rope_type", "default")) != "default":
            new["rope_scaling"] = {**rope, "type": kind}
    return config | {name: value for name, value in new.items() if value is not None}


def _period(layer_types: object) -> int | None:
    """Return n if of the layers each n-th looks at everything, and no other one."""
    if not isinstance(layer_types, list) or "full_attention" not in layer_types:
        return None
    n = layer_types.index("full_attention") + 1
    regular = [(i + 1) % n == 0 for i in range(len(layer_types))]
    return n if regular == [kind == "full_attention" for kind in layer_types] else None


def _check_depth(raw: Mapping[str, Any], num_tensors: int, path: Path) -> None:
    """Refuse more layers than there are tensors: each would be made before a weight is missed."""
    for name, value in raw.items():
        if isinstance(value, dict):
            _check_depth(value, num_tensors, path)
        elif name.endswith(_DEPTHS) and isinstance(value, int) and value > num_tensors:
            raise CheckpointError(
                f"{path}: config.json says {name} = {value}, and there are {num_tensors} tensors "
                "in all"
            )


@contextlib.contextmanager
def _told_apart(path: Path, model_type: str) -> Iterator[None]:
    """Make one line of whatever mlx-lm says or raises about a folder that it cannot use."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except CheckpointError:
        raise
    except (Exception, SystemExit) as e:
        reason = " ".join(str(e).split()) or "no reason given"
        kind = "" if isinstance(e, ValueError) else f"{type(e).__name__}: "
        more = "..." * (len(reason) > _SHOWN)
        raise CheckpointError(
            f"{path}: mlx-lm cannot make a {model_type!r} of it: {kind}{reason[:_SHOWN]}{more}"
        ) from e
    for line in printed.getvalue().splitlines():
        log.warning("mlx-lm: %s", line.strip())


def _load(folder: Path) -> nn.Module:
    """Make the network; its weights are not read yet."""
    from mlx_lm.utils import load_model

    network, _ = load_model(folder, lazy=True, strict=True, trust_remote_code=False)
    return network


def _settle(network: nn.Module, path: Path, *, as_stored: bool) -> None:
    """Read the weights, one after the other, so that none is held twice, and refuse those that hold
    no numbers. Quantized matrices become plain ones unless they stay `as_stored`."""
    from mlx_lm.utils import dequantize_model

    quantized = any("scales" in module for _, module in network.named_modules())
    if not as_stored:
        dequantize_model(network)  # nothing is computed yet
    weights = dict(tree_flatten(network.parameters()))
    changed = quantized
    while weights:
        name, array = weights.popitem()
        assert isinstance(array, mx.array)
        if mx.issubdtype(array.dtype, mx.floating):
            if array.dtype == mx.float64:  # no GPU has it
                array = array.astype(mx.float32)
            if not all_finite(array):
                raise CheckpointError(f"{path}: {name!r} holds NaN or infinite numbers")
            if not as_stored:
                changed |= array.dtype != mx.float32
                array = array.astype(mx.float32)
        mx.eval(array)
        network.update(tree_unflatten([(name, array)]))
    if changed and not as_stored:
        what = "quantized weights are" if quantized else "half precision is"
        log.warning("weights are computed in float32 here: %s slow on a CPU", what)
