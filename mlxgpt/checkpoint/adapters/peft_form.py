"""PEFT's form of an adapter: `adapter_model.safetensors`, its matrices the other way round.

`lora_A` (r, in) and `lora_B` (out, r) are the transposes of `a` and `b`; the multiplier is
alpha / r, with `use_rslora` alpha / sqrt(r) (Kalajdzievski, 2023).
"""

import re
import warnings
from collections import defaultdict
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint.adapters.adapter import EMBEDDING, Adapter
from mlxgpt.checkpoint.adapters.peft_targets import PatternValues, PEFTTargets
from mlxgpt.checkpoint.adapters.settings import Settings
from mlxgpt.checkpoint.adapters.tensors import finite_tensors, listed, low_rank
from mlxgpt.errors import CheckpointError, MLXGPTWarning

WEIGHTS = "adapter_model.safetensors"
PREFIX = "base_model.model."
PARTS = {"lora_A.weight": "a", "lora_B.weight": "b", "lora_magnitude_vector": "m"}
EMBEDDING_PARTS = {"lora_embedding_A": "a", "lora_embedding_B": "b"}
_PART = re.compile(
    r"(?P<path>.+)\.(?P<part>lora_A\.weight|lora_B\.weight|lora_embedding_A|lora_embedding_B"
    r"|lora_magnitude_vector)(?:(?<=vector)\.weight)?"
)
_CHANGES_THE_FUNCTION = (
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "trainable_token_indices",
    "target_parameters",
    "use_qalora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "use_bdlora",
)
_READ_OR_WITHOUT_EFFECT = {
    "peft_type", "r", "lora_alpha", "lora_dropout", "use_rslora", "use_dora", "rank_pattern",
    "alpha_pattern", "target_modules", "exclude_modules", "layers_to_transform", "layers_pattern",
    "modules_to_save", "bias", "init_lora_weights", "base_model_name_or_path",
    # of training, of other kinds of models, or records
    "task_type", "auto_mapping", "peft_version", "revision", "inference_mode", "megatron_config",
    "megatron_core", "loftq_config", "eva_config", "corda_config", "lora_ga_config",
    "velora_config", "qalora_group_size", "ensure_weight_tying", "runtime_config",
}  # fmt: skip
_FIRST_VALUES = (True, False, None, "gaussian", "orthogonal", "eva")  # others change the base, too


def read_peft(directory: Path, settings: Settings) -> Adapter:
    """Read an adapter of PEFT. Raises `CheckpointError`."""
    _refuse_the_unknown(settings)
    targets = PEFTTargets.read(settings)
    dora = settings.flag("use_dora")
    parts: defaultdict[str, dict[str, mx.array]] = defaultdict(dict)
    weights: dict[str, mx.array] = {}
    file = directory / WEIGHTS
    for name, tensor in finite_tensors(file).items():
        if not name.startswith(PREFIX):
            raise CheckpointError(f"{file}: {name!r} does not start with {PREFIX!r}")
        match = _PART.fullmatch(name.removeprefix(PREFIX))
        if match is None:
            weights[_whole_name(name, targets, file)] = tensor
            continue
        path, part = match["path"], match["part"]
        if (path == EMBEDDING) != (part in EMBEDDING_PARTS):
            raise CheckpointError(f"{file}: {name!r} is not supported")
        parts[path][(PARTS | EMBEDDING_PARTS)[part]] = tensor.T
    _check_targets(set(parts), targets, file)
    scales = _Scales(settings)
    modules = {
        path: low_rank(
            found,
            rank=scales.rank(path),
            scale=scales.scale(path),
            dora=dora,
            where=f"{file}: {path!r}",
        )
        for path, found in parts.items()
    }
    return Adapter(
        fine_tune_type="dora" if dora else "lora",
        modules=modules,
        weights=weights,
        targets=targets,
        dropout=settings.share("lora_dropout"),
        head_follows_embedding=False,
        base=settings.text("base_model_name_or_path"),
        source=str(directory),
    )


def _refuse_the_unknown(settings: Settings) -> None:
    where = settings.where
    kind = settings.content.get("peft_type")
    if kind != "LORA":
        raise CheckpointError(
            f"{where}: peft_type {ascii(kind)[:40]} is not supported; known: LORA"
        )
    for key in _CHANGES_THE_FUNCTION:
        if settings.has(key):
            raise CheckpointError(f"{where}: {key} is not supported")
    settings.choice("bias", ("none",), "none")
    first = settings.content.get("init_lora_weights", True)
    if first not in _FIRST_VALUES:
        raise CheckpointError(
            f"{where}: init_lora_weights = {ascii(first)[:40]} belongs to a changed base, which is "
            "not supported; convert the adapter with PEFT's save_pretrained("
            "path_initial_model_for_weight_conversion=...)"
        )
    known = _READ_OR_WITHOUT_EFFECT | set(_CHANGES_THE_FUNCTION)
    unknown = [key for key in settings.content if key not in known and settings.has(key)]
    if unknown:
        text = f"{where}: not known here and without effect: {listed(unknown)}"
        warnings.warn(text, MLXGPTWarning, stacklevel=2)


class _Scales:
    """Rank and multiplier of each module."""

    def __init__(self, settings: Settings) -> None:
        self._r, self._alpha = settings.whole("r", 1), settings.number("lora_alpha")
        self._square_root = settings.flag("use_rslora")
        self._ranks = _patterns(settings, "rank_pattern")
        self._alphas = _patterns(settings, "alpha_pattern")

    def rank(self, path: str) -> int:
        return int(self._ranks.get(path, self._r))

    def scale(self, path: str) -> float:
        rank, alpha = self.rank(path), self._alphas.get(path, self._alpha)
        return alpha / (rank**0.5 if self._square_root else rank)


def _patterns(settings: Settings, key: str) -> PatternValues:
    inside = settings.inside(key) if settings.content.get(key) is not None else None
    if inside is None:
        return PatternValues({}, settings.where)
    whole = key == "rank_pattern"
    values = {p: inside.whole(p, 1) if whole else inside.number(p) for p in inside.content}
    return PatternValues(values, inside.where)


def _whole_name(name: str, targets: PEFTTargets, file: Path) -> str:
    """Return the name in the network of a weight that is stored whole."""
    path, _, part = name.removeprefix(PREFIX).rpartition(".")
    path = path.removesuffix(".base_layer")  # PEFT adds an embedding that is a target, or resized
    saved = path in (EMBEDDING, "lm_head")
    saved |= any(path == module or path.endswith(f".{module}") for module in targets.saved)
    if part not in ("weight", "bias") or not saved:
        raise CheckpointError(f"{file}: {name!r} is not part of an adapter of these settings")
    return f"{path}.{part}"


def _check_targets(paths: set[str], targets: PEFTTargets, file: Path) -> None:
    extra = [path for path in paths if not targets.match(path)]
    if extra:
        raise CheckpointError(f"{file}: not among 'target_modules': {listed(extra)}")
