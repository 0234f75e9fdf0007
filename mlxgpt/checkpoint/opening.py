"""What the user typed for a model -> the `Checkpoint` that it names.

One form everywhere: a run, a model directory, a GGUF file, or a name on the Hugging Face Hub.
"""

import difflib
import os
from pathlib import Path

from mlxgpt.checkpoint.checkpoint import Checkpoint
from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.hf import HFDirectory
from mlxgpt.checkpoint.hf.unfinished import refuse_other_weights, refuse_placeholder, why_incomplete
from mlxgpt.checkpoint.hub import HubModel, download
from mlxgpt.checkpoint.json_file import read_json
from mlxgpt.errors import CheckpointError, one_line

_EXPECTED = "a run, a model directory, a GGUF file, or owner/name for a model of the Hub"
_GGUF_MAGIC = b"GGUF"
_PICKLE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_RUN = "run.yaml"
_SHOWN = 8


def open_checkpoint(location: str | Path) -> Checkpoint:
    """Open a run, a model directory, a GGUF file, or a model of the Hub.

    `location` is a path, or `owner/name`, `owner/name@revision` or
    `owner/name/file.gguf[@revision]`, which is downloaded if need be; what exists here wins.
    Nothing but names and the first bytes of a file is looked at. Raises `CheckpointError`.
    """
    path = local_path(location)
    if os.path.isdir(path):
        return _open_directory(path)
    return GGUFFile(_checked_file(path))


def local_path(location: str | Path) -> Path:
    """Return the path of a model or an adapter, downloaded from the Hub if need be.

    What is there is not looked at. Raises `CheckpointError` for what is neither here nor there.
    """
    text = os.fspath(location)
    path = Path(os.path.expanduser(text))
    if text and os.path.exists(path):
        return path
    model = named_on_hub(text)
    if model is None:
        raise CheckpointError(_not_found(text, path))
    return download(model)


def named_on_hub(location: str | Path) -> HubModel | None:
    """Return the model of the Hub that `location` names; None for what is here, or should be."""
    text = os.fspath(location)
    here = text and os.path.exists(os.path.expanduser(text))
    return None if here or _looks_like_path(text) else HubModel.parse(text)


def _looks_like_path(text: str) -> bool:
    """Return whether a name that does not exist was meant for a path here, and not for the Hub."""
    name = text.partition("@")[0]
    if name.startswith(("hf:", ".", "/", "~")):
        return not name.startswith("hf:")
    return os.path.isdir(name.partition("/")[0])


def _not_found(text: str, path: Path) -> str:
    if not text:
        return f"an empty name is no model; expected {_EXPECTED}"
    if os.path.lexists(path):
        return f"{path} is a link to something that does not exist"
    if text.startswith(("https://", "http://")):
        return f"{text} is an address; expected {_EXPECTED}"
    near = _nearest(path)
    hint = f"; did you mean {near}?" if near else f"; expected {_EXPECTED}"
    if HubModel.parse(text) is not None:
        hint += f" (hf://{text} is the one on the Hub)"
    return f"{text} does not exist{hint}"


def _nearest(path: Path) -> Path | None:
    """Return what is most like `path` among that which exists beside it."""
    folder = path.parent
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        near = _nearest(folder) if folder.parent != folder and folder.name else None
        return near / path.name if near and os.path.exists(near / path.name) else near
    found = difflib.get_close_matches(path.name, names, n=1, cutoff=0.6)
    return folder / found[0] if found else None


def _open_directory(path: Path) -> Checkpoint:
    try:
        names = set(os.listdir(path))
    except OSError as e:
        raise CheckpointError(f"cannot look into {path}: {e.strerror or e}") from e
    weights = [name for name in names if name.endswith(".safetensors")]
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if "adapter_config.json" in names and not any(n.startswith("model") for n in weights):
        raise CheckpointError(
            f"{path} is an adapter, no model: give the model that it was made for{_base(path)}; "
            "generate and eval take the adapter with --adapter, export with --fuse"
        )
    if "config.json" in names and not os.path.isfile(path / "config.json"):
        raise CheckpointError(f"{path / 'config.json'} is no regular file")
    if "config.json" in names and (weights or not ggufs):
        if _RUN in names and not weights:
            raise CheckpointError(_not_saved(path))
        return HFDirectory(path)
    if len(ggufs) == 1:
        return GGUFFile(_checked_file(path / ggufs[0]))
    if ggufs:
        shown = ", ".join(map(one_line, ggufs[:_SHOWN])) + ", ..." * (len(ggufs) > _SHOWN)
        raise CheckpointError(f"{path} holds {len(ggufs)} GGUF files; give one of them: {shown}")
    if _RUN in names:
        raise CheckpointError(_not_saved(path))
    refuse_other_weights(path)
    raise CheckpointError(
        f"{path} is not a model directory: it has no config.json{why_incomplete(path)}"
    )


def _base(adapter: Path) -> str:
    settings = read_json(adapter / "adapter_config.json")
    name = settings.get("base_model_name_or_path") or settings.get("model")
    return f" ({one_line(name, 200)})" if isinstance(name, str) else ""


def _not_saved(path: Path) -> str:
    return (
        f"{path} is a run that has not saved a model yet: wait for its first save, or start it "
        f"again with mlxgpt train --resume {path}"
    )


def _checked_file(path: Path) -> Path:
    """Return the path of a GGUF file, which is known by its first bytes, not by its name."""
    if not os.path.isfile(path):  # a pipe would be waited for
        raise CheckpointError(f"{path} is no regular file; expected {_EXPECTED}")
    try:
        with path.open("rb") as f:
            start = f.read(len(_GGUF_MAGIC))
    except OSError as e:
        raise CheckpointError(f"cannot read {path}: {e.strerror or e}") from e
    if start == _GGUF_MAGIC:
        return path
    refuse_placeholder(path)
    if path.suffix.lower() in _PICKLE or start[:1] == b"\x80":
        raise CheckpointError(
            f"{path} is pickle, which can run any code when it is opened and is never read: take "
            "a version of the model as .safetensors or GGUF"
        )
    if path.suffix.lower() == ".gguf":
        raise CheckpointError(f"{path} is no GGUF file: it does not begin with the letters GGUF")
    if os.path.isfile(path.parent / "config.json"):
        raise CheckpointError(f"{path} is a file of a model; give its directory, {path.parent}")
    raise CheckpointError(f"{path} is a file, but no GGUF file; expected {_EXPECTED}")
