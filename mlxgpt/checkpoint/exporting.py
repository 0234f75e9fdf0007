"""A checkpoint -> the same model for other tools: another precision, quantized, an adapter fused.

Weights go by one after the other; the source is only read.
"""

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mlx.core as mx

from mlxgpt.atomic import new_folder, write_bytes
from mlxgpt.checkpoint.adapters import Adapter, Rounding, check_fit, fused
from mlxgpt.checkpoint.adapters.base_fingerprint import warn_of_another_base
from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.description import write_description
from mlxgpt.checkpoint.gguf.writing import write_gguf
from mlxgpt.checkpoint.gguf.writing_metadata import architecture_of
from mlxgpt.checkpoint.loading import load_tokenizer, plain_weights
from mlxgpt.checkpoint.model_card import About, model_card, precision_of
from mlxgpt.checkpoint.shards import write_weights
from mlxgpt.errors import CheckpointError, MLXGPTWarning
from mlxgpt.model import GPTConfig, Quantization, weight_shapes
from mlxgpt.text import Tokenizer
from mlxgpt.text.chat_template import ChatTemplate

_GGUF_TYPES = {mx.float32: "F32", mx.float16: "F16", mx.bfloat16: "BF16"}
_WORTH_SAYING = 0.01
"""Share of lost changes from which on it is said; a few always fall between two numbers."""


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """What is to be written: a stream that can be read once, and how its matrices are packed."""

    weights: Iterator[tuple[str, mx.array]]
    quantization: Mapping[str, Quantization]
    chat_template: str | None = None
    """One that takes the place of the source's own: that of a fused adapter."""

    def ends(self, tokenizer: Tokenizer) -> frozenset[int]:
        """Return the ids that end an answer by that template."""
        if self.chat_template is None:
            return frozenset()
        template = ChatTemplate(self.chat_template, tokenizer.border_names())
        end = template.end_of_turn(tokenizer)
        return frozenset() if end is None else frozenset({end})


def outgoing(
    checkpoint: Checkpoint,
    *,
    dtype: mx.Dtype | None = None,
    quantization: Quantization | None = None,
    adapter: Adapter | None = None,
    unpacked: bool = False,
) -> Outgoing:
    """Prepare the weights of `checkpoint`, changed as asked for.

    With nothing asked for they are the stored ones, quantized ones as they are. `dtype` None keeps
    the precision of each tensor, and for what was quantized takes that of its scales. An `adapter`
    is added in float32 before that; one that was made for other weights gives an `MLXGPTWarning`.
    `quantization` packs every matrix whose rows come out even;
    `unpacked` leaves none packed, for a format that packs in its own way.
    """
    if dtype is None and quantization is None and adapter is None and not unpacked:
        return Outgoing(weights=checkpoint.weights(), quantization=checkpoint.quantization)
    packed = packable(checkpoint.config, quantization) if quantization is not None else {}
    stored: dict[str, mx.Dtype] = {}

    def remembered(pairs: Iterator[tuple[str, mx.array]]) -> Iterator[tuple[str, mx.array]]:
        for name, array in pairs:
            stored[name] = dtype or array.dtype
            yield name, array

    weights = remembered(plain_weights(checkpoint, None))
    if adapter is not None:
        check_fit(adapter, checkpoint.config)
        warn_of_another_base(adapter, checkpoint)
        weights = _fused(weights, adapter, stored, packed)
    weights = _cast(weights, stored)
    return Outgoing(
        weights=_packed(weights, packed) if packed else weights,
        quantization=packed,
        chat_template=None if adapter is None else adapter.chat_template,
    )


def packable(config: GPTConfig, quantization: Quantization) -> dict[str, Quantization]:
    """Return module path -> `quantization` for each matrix whose columns come out even.

    Raises `CheckpointError` if there is none.
    """
    modules = {
        name.removesuffix(".weight"): quantization
        for name, shape in weight_shapes(config)
        if len(shape) == 2 and shape[1] % quantization.group_size == 0
    }
    if not modules:
        raise CheckpointError(
            f"no matrix of this model has columns in groups of {quantization.group_size} (it is "
            f"{config.n_embd} wide): choose a smaller --group-size"
        )
    return modules


def export_directory(checkpoint: Checkpoint, out: Path, changed: Outgoing, about: About) -> None:
    """Write `changed` as a Hugging Face directory `out`, which appears when it is complete.

    Raises `CheckpointError` when `out` is taken or the disk refuses.
    """
    tokenizer = load_tokenizer(checkpoint)
    with _new_folder(out) as folder:
        written = write_weights(folder, changed.weights)
        raw = write_description(
            folder,
            checkpoint,
            tokenizer,
            dtype=written.dtype,
            quantization=changed.quantization,
            more_stop_ids=changed.ends(tokenizer),
        )
        if changed.chat_template is not None:
            write_bytes(folder / "chat_template.jinja", changed.chat_template.encode())
        precision = precision_of(changed.quantization, written.dtype)
        use = [("mlxgpt", f"mlxgpt generate {out.name} --prompt ..."),
               ("mlx-lm", f"mlx_lm.generate --model {out.name} --prompt ...")]  # fmt: skip
        if not changed.quantization:
            use.append(("transformers", f'AutoModelForCausalLM.from_pretrained("{out.name}")'))
        card = model_card(checkpoint.config, about, raw["model_type"], precision, use)
        write_bytes(folder / "README.md", card.encode())


def export_gguf(
    checkpoint: Checkpoint,
    out: Path,
    changed: Outgoing,
    about: About,
    *,
    dtype: mx.Dtype | None = None,
    bits: Literal[4, 8] | None = None,
) -> Path:
    """Write `changed`, which is not packed, as a GGUF file, and return its path.

    `out` is that file if it ends in `.gguf`, else a new folder for it and its card. Raises
    `CheckpointError` when `out` is taken, the disk refuses, or GGUF has no form for the model.
    """
    kind = f"Q{bits}_0" if bits else _GGUF_TYPES[dtype] if dtype else ""
    tokenizer = load_tokenizer(checkpoint)

    def write(file: Path) -> None:
        write_gguf(
            file,
            config=checkpoint.config,
            weights=changed.weights,
            tokenizer=tokenizer,
            stop_ids=checkpoint.stop_ids | changed.ends(tokenizer),
            chat_template=changed.chat_template or checkpoint.chat_template,
            dtype=dtype,
            bits=bits,
            name=about.title,
        )

    if out.suffix.lower() == ".gguf":
        check_new(out)
        write(out)
        return out
    name = "-".join(filter(None, (about.title, kind))) + ".gguf"
    with _new_folder(out) as folder:
        write(folder / name)
        use = [("mlxgpt", f"mlxgpt generate {name} --prompt ..."),
               ("llama.cpp", f"llama-cli -m {name} -p ...")]  # fmt: skip
        family = architecture_of(checkpoint.config)
        card = model_card(checkpoint.config, about, family, kind or "as in the source", use)
        write_bytes(folder / "README.md", card.encode())
    return out / name


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Give a folder that becomes `out` when all is in it."""
    check_new(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(out, same=False) as folder:
            yield folder
    except FileExistsError as e:
        if e.filename != str(out):
            raise CheckpointError(f"cannot write {out}: {e.filename} is no folder") from e
        raise CheckpointError(f"{out} has come into being meanwhile: choose another --out") from e
    except OSError as e:
        raise CheckpointError(f"cannot write {out}: {e.strerror or e}") from e
    except RuntimeError as e:  # MLX's own, when a disk is full
        raise CheckpointError(f"cannot write {out}: {e}") from e


def check_new(out: Path) -> None:
    """Raise `CheckpointError` unless `out` can become a new file or folder."""
    if not out.name or out.resolve() == Path.cwd():
        raise CheckpointError("--out must name a new folder, not the one you are in")
    if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
        return
    if out.exists() or out.is_symlink():
        raise CheckpointError(f"{out} is there already: choose another --out, or remove it first")


def _fused(
    weights: Iterator[tuple[str, mx.array]],
    adapter: Adapter,
    stored: Mapping[str, mx.Dtype],
    packed: Mapping[str, Quantization],
) -> Iterator[tuple[str, mx.array]]:
    """Fuse, and say at the end how much of the adapter the stored form has no room for."""

    def kept(name: str, weight: mx.array, _: mx.Dtype) -> mx.array:
        how = packed.get(name.removesuffix(".weight"))
        weight = weight.astype(stored[name])
        return weight if how is None else how.dequantize(how.quantize(weight), stored[name])

    rounding = Rounding(kept)
    yield from fused(weights, adapter, rounding)
    if rounding.fraction >= _WORTH_SAYING:
        warnings.warn(
            f"{rounding.fraction:.0%} of the weights that the adapter changes are the same as "
            f"before in this precision; --dtype float32{' without --quantize' if packed else ''} "
            "keeps all changes",
            MLXGPTWarning,
            stacklevel=2,
        )


def _cast(
    weights: Iterator[tuple[str, mx.array]], stored: Mapping[str, mx.Dtype]
) -> Iterator[tuple[str, mx.array]]:
    for name, array in weights:
        result = array.astype(stored[name])
        if stored[name] == mx.float16 and not mx.isfinite(result).all():
            raise CheckpointError(f"{name} has numbers too large for float16: use --dtype bfloat16")
        mx.eval(result)
        yield name, result


def _packed(
    weights: Iterator[tuple[str, mx.array]], modules: Mapping[str, Quantization]
) -> Iterator[tuple[str, mx.array]]:
    for name, array in weights:
        module, _, part = name.rpartition(".")
        if part != "weight" or module not in modules:
            yield name, array
            continue
        for part, packed in modules[module].quantize(array).items():
            yield f"{module}.{part}", packed
