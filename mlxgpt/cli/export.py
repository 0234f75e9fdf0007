"""`mlxgpt export`: a model or an adapter -> the files that other tools open."""

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mlxgpt.cli.shell import command, import_heavy

if TYPE_CHECKING:
    from mlxgpt.checkpoint import About, Checkpoint

_DTYPES = {
    "float32": "float32", "fp32": "float32", "f32": "float32",
    "float16": "float16", "fp16": "float16", "f16": "float16",
    "bfloat16": "bfloat16", "bf16": "bfloat16",
}  # fmt: skip
Form = Literal["hf", "gguf", "peft", "mlx-lm"]


def export(
    source: Annotated[
        str,
        typer.Argument(
            help="Run, model directory, GGUF file or Hub id; for peft, mlx-lm: adapter."
        ),
    ],
    to: Annotated[Form, typer.Option("--to", help="hf and gguf: models; peft, mlx-lm: adapters.")],
    out: Annotated[Path, typer.Option(help="New folder, or for gguf a new file *.gguf.")],
    quantize: Annotated[
        int | None, typer.Option(help="Bits of a weight: 4 or 8. [as it is]")
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Weights that share a scale: 32, 64, 128. [64; gguf: 32]")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="float32, float16 or bfloat16 (bf16). [as it is]")
    ] = None,
    fuse: Annotated[
        str | None, typer.Option(metavar="ADAPTER", help="Add an adapter to the weights.")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="For peft, mlx-lm: name of the base model. [as it says]")
    ] = None,
) -> None:
    """Write a model, or an adapter, for another tool."""
    import_heavy("mlxgpt.checkpoint")
    import signal

    from mlxgpt.errors import ConfigError

    for ending in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: nothing half-written stays
        signal.signal(ending, signal.default_int_handler)
    given = {"--quantize": quantize, "--group-size": group_size, "--dtype": dtype, "--fuse": fuse}
    if to in ("peft", "mlx-lm"):
        _refuse(given, f"--to {to}, which writes an adapter")
        _export_adapter(source, to, out, base)
        return
    _refuse({"--base": base}, f"--to {to}, which writes a whole model")
    if quantize is not None and quantize not in (4, 8):
        raise ConfigError(f"--quantize must be 4 or 8; got {quantize}")
    bits: Literal[4, 8] | None = None if quantize is None else 4 if quantize == 4 else 8
    _export_model(source, to, out, bits, group_size, dtype, fuse)


def _refuse(given: dict[str, Any], what: str) -> None:
    from mlxgpt.errors import ConfigError

    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} has no effect with {what}; leave it out")


def _export_adapter(
    source: str, to: Literal["peft", "mlx-lm"], out: Path, base: str | None
) -> None:
    from mlxgpt.checkpoint import check_new, read_adapter, write_adapter
    from mlxgpt.errors import ConfigError

    check_new(out)
    if base == "":
        raise ConfigError("--base is empty; give the name of the base model, or leave it out")
    adapter = read_adapter(source)
    write_adapter(out, adapter, to, base=base)
    typer.echo(f"adapter  {out}")


def _export_model(
    source: str,
    to: Literal["hf", "gguf"],
    out: Path,
    bits: Literal[4, 8] | None,
    group_size: int | None,
    dtype_name: str | None,
    fuse: str | None,
) -> None:
    from mlxgpt.checkpoint import (
        check_new,
        export_directory,
        export_gguf,
        open_checkpoint,
        outgoing,
        read_adapter,
    )
    from mlxgpt.errors import MLXGPTWarning

    quantization, dtype = _settings(to, bits, group_size, dtype_name)
    checkpoint = open_checkpoint(source)
    check_new(out)
    _check_place(source, checkpoint, to, out)
    adapter = read_adapter(fuse) if fuse is not None else None
    unpacked = to == "gguf"
    packing = None if unpacked else quantization
    changed = outgoing(
        checkpoint, dtype=dtype, quantization=packing, adapter=adapter, unpacked=unpacked
    )
    if checkpoint.quantization and bits is None and dtype is None and (unpacked or adapter):
        warnings.warn(
            "the quantized weights of the source are unpacked, and take several times the space; "
            "--quantize 4 or 8 packs them again, --dtype float16 halves them",
            MLXGPTWarning,
            stacklevel=1,
        )
    about = _about(checkpoint, source, fuse)
    if to == "hf":
        export_directory(checkpoint, out, changed, about)
        written = out
    else:
        written = export_gguf(checkpoint, out, changed, about, dtype=dtype, bits=bits)
    typer.echo(f"model  {written}\nnext   {command('generate', written)}")


def _check_place(source: str, checkpoint: "Checkpoint", to: str, out: Path) -> None:
    """Refuse models that are not ours, and an `out` that would change the source."""
    from mlxgpt.checkpoint.foreign import ForeignArchitecture
    from mlxgpt.errors import ConfigError

    try:
        _ = checkpoint.config
    except ForeignArchitecture as e:
        raise ConfigError(
            f"{source} is of architecture '{e.model_type}', which mlx-lm runs: it can be generated "
            "from and evaluated, not exported"
        ) from e
    for folder in (Path(source).expanduser(), checkpoint.path):
        if folder.is_dir() and out.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"--out {out} lies inside the source {folder}; choose another")
    if to == "hf" and out.suffix.lower() == ".gguf":
        raise ConfigError(f"--to hf writes a folder; {out} looks like a file (--to gguf)")


def _about(checkpoint: "Checkpoint", source: str, fuse: str | None) -> "About":
    """Gather what the model card says beside the shape."""
    from mlxgpt.checkpoint import About
    from mlxgpt.train.run_facts import run_facts

    facts = run_facts(checkpoint.path)
    title = checkpoint.path.resolve().name.removesuffix(".gguf")
    rows = [] if facts else [("made from", _name(source))]
    if fuse is not None:
        rows.append(("adapter", _name(fuse)))
    training = [(what, _name(value)) for what, value in facts.rows()] if facts else []
    return About(title=title, source=rows, training=training)


def _name(text: str) -> str:
    """Shorten a path of this machine to its last part: a card is made to be published."""
    return Path(text).name if os.path.exists(os.path.expanduser(text)) else text


def _settings(
    to: Literal["hf", "gguf"], bits: int | None, group_size: int | None, dtype_name: str | None
) -> tuple[Any, Any]:
    """Return (Quantization or None, dtype or None) of what was asked for."""
    import mlx.core as mx

    from mlxgpt.errors import ConfigError, did_you_mean
    from mlxgpt.model import Quantization

    if dtype_name is not None and dtype_name not in _DTYPES:
        raise ConfigError(
            f"--dtype must be float32, float16 or bfloat16; got '{dtype_name}'"
            f"{did_you_mean(dtype_name, _DTYPES)}"
        )
    dtype = None if dtype_name is None else getattr(mx, _DTYPES[dtype_name])
    if bits is None:
        _refuse({"--group-size": group_size}, "weights that are not quantized (--quantize 4)")
        return None, dtype
    if to == "gguf" and group_size not in (None, 32):
        raise ConfigError(f"--group-size of a GGUF file is 32; got {group_size}")
    return Quantization(
        bits=bits, group_size=(32 if to == "gguf" else 64) if group_size is None else group_size
    ), dtype
