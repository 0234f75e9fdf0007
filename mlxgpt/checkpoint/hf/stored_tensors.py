"""GPTConfig and quantization <-> the tensors that a directory holds: names, shapes, dtypes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mlxgpt.checkpoint.hf.quantization_settings import QuantizationSettings
from mlxgpt.checkpoint.safetensors import TensorInfo
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.model import GPTConfig, Quantization, weight_shapes

Headers = Mapping[str, tuple[Path, TensorInfo]]
"""Name -> the file that it stands in, and its header entry."""

FLOATS = ("F32", "F16", "BF16")
EMBEDDING, HEAD = "model.embed_tokens", "lm_head"
_SHOWN = 5


@dataclass(frozen=True)
class ExpectedTensor:
    """What a tensor must be."""

    shape: tuple[int, ...]
    dtypes: tuple[str, ...]


def expected_tensors(
    config: GPTConfig, quantization: Mapping[str, Quantization]
) -> Iterator[tuple[str, ExpectedTensor]]:
    """Yield name and kind of each tensor, in the order of the network; one module's together.

    Raises `ConfigError` if a quantized matrix does not come out in whole groups.
    """
    for name, shape in weight_shapes(config):
        module = name.removesuffix(".weight")
        how = quantization.get(module)
        if how is None or module == name:
            yield name, ExpectedTensor(shape, FLOATS)
            continue
        try:
            parts = how.shapes(*shape)
        except ConfigError as e:
            raise ConfigError(f"{name!r} cannot be quantized so: {e}") from e
        rest = FLOATS if how.mode == "affine" else ("U8",)
        for part, size in parts.items():
            yield f"{module}.{part}", ExpectedTensor(size, ("U32",) if part == "weight" else rest)


def quantized_modules(
    settings: QuantizationSettings, config: GPTConfig, found: Headers, directory: Path
) -> dict[str, Quantization]:
    """Return path -> how for the modules that are stored in packed form.

    They are those with `scales`, as for mlx-lm; the config says how. Raises `CheckpointError` where
    the two contradict each other.
    """
    refuse_missing(config, found, directory)
    matrices = {n.removesuffix(".weight"): s for n, s in weight_shapes(config) if len(s) == 2}
    if config.tie_embeddings:
        matrices[HEAD] = matrices[EMBEDDING]
    for path, how in settings.modules.items():
        if path not in matrices and how is not None:
            raise CheckpointError(
                f"{directory}: config.json quantizes {path!r}, which is no matrix"
            )
    result: dict[str, Quantization] = {}
    for path in matrices:
        weight, scales = found.get(f"{path}.weight"), f"{path}.scales"
        stored = scales in found or (weight is not None and weight[1].dtype == "U32")
        how = settings.of(path)
        if stored and how is None:
            raise CheckpointError(
                f"{directory}: {path!r} is quantized, but config.json says that it is not"
            )
        if how is not None and (stored or path in settings.modules):
            result[path] = how
    has_copy = config.tie_embeddings and any(name.startswith(f"{HEAD}.") for name in found)
    if has_copy and result.get(HEAD) != result.get(EMBEDDING):
        raise CheckpointError(
            f"{directory}: config.json ties the embeddings, but 'lm_head' is quantized in another "
            "way than 'model.embed_tokens'"
        )
    if config.tie_embeddings:
        result.pop(HEAD, None)
    return result


def check_stored(
    config: GPTConfig, quantization: Mapping[str, Quantization], found: Headers, directory: Path
) -> None:
    """Raise `CheckpointError` unless `found` is exactly what the config asks for.

    A tied model may hold its head once more.
    """
    refuse_missing(config, found, directory)
    try:
        expected = dict(expected_tensors(config, quantization))
    except ConfigError as e:
        raise CheckpointError(f"{directory}: {e}") from e
    _refuse("missing", [name for name in expected if name not in found], directory)
    scales = next((n for n in found if n.endswith(".scales") and n not in expected), None)
    if scales is not None and not quantization:
        raise CheckpointError(
            f"{directory}: {scales!r} belongs to a quantized matrix, but config.json has no "
            "'quantization' that says how"
        )
    if config.tie_embeddings:
        for name in [n for n in expected if n.startswith(f"{EMBEDDING}.")]:
            expected[f"{HEAD}.{name.rpartition('.')[2]}"] = expected[name]
    for name, kind in expected.items():
        if name not in found:  # the head of a tied model
            continue
        file, info = found[name]
        how = quantization.get(name.rpartition(".")[0])
        packed = f" ({how.bits} bits in groups of {how.group_size})" if how else ""
        if info.dtype not in kind.dtypes:
            raise CheckpointError(
                f"{file}: {name!r} has dtype {info.dtype}; expected {', '.join(kind.dtypes)}"
                f"{packed}"
            )
        if info.shape != kind.shape:
            raise CheckpointError(
                f"{file}: {name!r} has shape {list(info.shape)}, config.json asks for "
                f"{list(kind.shape)}{packed}"
            )
    _refuse("not part of this model", sorted(set(found) - set(expected)), directory)


def refuse_missing(config: GPTConfig, found: Headers, directory: Path) -> None:
    """Raise `CheckpointError` naming weights that `found` lacks.

    Ends early, so a config of a billion layers costs nothing; past it the config is of the size of
    the files.
    """
    names = (name for name, _ in weight_shapes(config))
    _refuse("missing", list(islice((n for n in names if n not in found), _SHOWN + 1)), directory)


def _refuse(what: str, names: list[str], directory: Path) -> None:
    if names:
        shown = ", ".join(map(repr, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)
        raise CheckpointError(f"{directory}: {what}: {shown}")
