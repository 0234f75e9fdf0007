"""A name on the Hugging Face Hub -> the files of that model on this disk, downloaded if need be.

Only what is read is downloaded: weights as safetensors or GGUF, settings, tokenizer. Pickle and
code never come here.
"""

import errno
import glob
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlxgpt.errors import CheckpointError, did_you_mean

log = logging.getLogger(__name__)

SMALL_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
    "model.safetensors.index.json", "adapter_config.json",
)  # fmt: skip
_WEIGHTS = ("model*.safetensors", "adapter_model.safetensors", "adapters.safetensors")
_PICKLE = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[^@]+\.gguf))?(?:@(?P<revision>.+))?", re.IGNORECASE
)
_PROTOCOL = "hf://"
_SHOWN = 12


@dataclass(frozen=True)
class HubModel:
    """A repository of the Hub, or one GGUF file of it, at a revision."""

    repo: str
    file: str | None = None
    revision: str | None = None
    """A branch, a tag or a commit; None: the main branch."""

    @classmethod
    def parse(cls, text: str) -> "HubModel | None":
        """Read `owner/name`, `owner/name@revision` or `owner/name/file.gguf[@revision]`.

        `hf://` may stand before it. Returns None for what is none of these.
        """
        found = _NAME.fullmatch(text.removeprefix(_PROTOCOL))
        return None if found is None else cls(**found.groupdict())

    def __str__(self) -> str:
        file = f"/{self.file}" if self.file else ""
        return f"{self.repo}{file}{f'@{self.revision}' if self.revision else ''}"


def download(model: HubModel) -> Path:
    """Return the directory of the model, or its one GGUF file, with all that is read in it.

    What is in the cache is not downloaded again; where the Hub cannot be reached, the cache is
    enough. Raises `CheckpointError` in one line.
    """
    if _COMMIT.fullmatch(model.revision or "") and (cached := in_cache(model)):
        return cached  # a commit never changes
    try:
        names = file_names(model)
    except CheckpointError:
        raise
    except Exception as e:  # of several libraries, and not the same ones in each version
        if _is_missing_revision(e) or not (cached := in_cache(model)):
            raise CheckpointError(why_not(model, e)) from e
        if not _offline():
            log.warning("%s: %s; using what was downloaded before", model, _what(e))
        return cached
    wanted = wanted_files(model, names)
    folder = fetch(model, wanted)
    return folder / wanted[0] if wanted[0].lower().endswith(".gguf") else folder


def file_names(model: HubModel) -> list[str]:
    """Ask the Hub which files there are."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(model.repo, revision=model.revision, timeout=_timeout())
    return [file.rfilename for file in info.siblings or ()]


def wanted_files(model: HubModel, names: Sequence[str]) -> list[str]:
    """Return the files to download. Raises `CheckpointError` where none of them can be read."""
    if model.file is not None:
        if model.file not in names:
            ggufs = [name for name in names if name.lower().endswith(".gguf")]
            near = did_you_mean(model.file, ggufs) if ggufs else "; there is no GGUF file at all"
            raise CheckpointError(f"{model.repo} on the Hub has no file {model.file}{near}")
        return [model.file]
    here = [name for name in names if "/" not in name]
    tensors = [name for name in here if name.endswith(".safetensors")]
    tensors = [n for n in tensors if n.startswith("model")] or tensors
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if tensors:
        if not {"config.json", "adapter_config.json"} & set(here):
            raise CheckpointError(f"{model} on the Hub is no language model: it has no config.json")
        return [name for name in here if name in SMALL_FILES] + tensors
    if len(ggufs) > 1:
        shown = ", ".join(ggufs[:_SHOWN]) + ", ..." * (len(ggufs) > _SHOWN)
        example = HubModel(model.repo, ggufs[0], model.revision)
        raise CheckpointError(
            f"{model} on the Hub has {len(ggufs)} GGUF files; name one, as in {example}: {shown}"
        )
    if ggufs:
        return ggufs
    if pickles := [name for name in names if name.endswith(_PICKLE)]:
        raise CheckpointError(
            f"{model} on the Hub has its weights as pickle only ({pickles[0]}), which can run any "
            "code when it is opened and is never read: take a version with .safetensors"
        )
    raise CheckpointError(f"{model} on the Hub has no weights as safetensors or GGUF")


def fetch(model: HubModel, wanted: Sequence[str]) -> Path:
    """Download what is missing of the `wanted` files, and return the folder that holds them.

    Raises `CheckpointError`.
    """
    from huggingface_hub import snapshot_download

    from mlxgpt.checkpoint.download_bar import download_bar

    patterns = list(map(glob.escape, wanted))
    try:
        with download_bar(model.repo) as bar:
            folder = snapshot_download(
                model.repo, revision=model.revision, allow_patterns=patterns, tqdm_class=bar
            )
    except Exception as e:
        raise CheckpointError(why_not(model, e, started=True)) from e
    return Path(folder)


def in_cache(model: HubModel) -> Path | None:
    """Return where the model is in the cache, if it is complete, without asking anybody."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    patterns = [*SMALL_FILES, *_WEIGHTS] if model.file is None else [glob.escape(model.file)]
    try:
        folder = Path(
            snapshot_download(
                model.repo, revision=model.revision, allow_patterns=patterns, local_files_only=True
            )
        )
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    if model.file is not None:
        return folder / model.file if os.path.isfile(folder / model.file) else None
    ends = (".safetensors", ".gguf")
    found = any(name.lower().endswith(ends) for name in os.listdir(folder))
    return folder if found else None


def why_not(model: HubModel, error: Exception, *, started: bool = False) -> str:
    """Return the line that says what went wrong and what to do."""
    from huggingface_hub import constants, errors

    log_in = "log in with `hf auth login`"
    if isinstance(error, errors.GatedRepoError):
        page = f"{constants.ENDPOINT}/{model.repo}"
        return f"{model} is gated: accept its licence on {page} and {log_in}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{model.repo} on the Hub has no revision {model.revision}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"there is no {model.repo} on the Hub, nor a file or folder of that name here; check "
            f"it, or, if it is private, {log_in}"
        )
    if isinstance(error, errors.HFValidationError):
        return f"{model} is neither a file or folder here nor a name that the Hub allows"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"{model} is not in the cache, or not complete, and HF_HUB_OFFLINE is set: unset it "
            "once to download, or give a directory"
        )
    if _errno(error) in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"cannot download {model}: the disk is full; make room for {constants.HF_HUB_CACHE}, "
            "or set HF_HOME to another place"
        )
    if _errno(error) in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR):
        return (
            f"cannot download {model}: {_what(error)}; HF_HOME says where the cache is "
            f"(now {constants.HF_HUB_CACHE})"
        )
    status = _status(error)
    if status in (401, 403):
        return f"the Hub refuses {model} to this login ({status}): {log_in} with a token that may"
    if started:
        return (
            f"the download of {model} was interrupted: {_what(error)}; start it again, files that "
            "came whole are kept"
        )
    return f"{model} is not in the cache, and the Hub was of no help: {_what(error)}"


def _what(error: Exception) -> str:
    """Return in a few words what a failed request says."""
    if (status := _status(error)) is not None:
        return f"it answers with an error ({status})"
    message = " ".join(str(error).split())
    kind = type(error).__name__
    if "Timeout" in kind:
        return "it does not answer"
    if "ConnectError" in kind or isinstance(error, ConnectionError):
        return f"there is no connection to it ({message[:100]}); check the network"
    return f"{kind}: {message[:200]}"


def _status(error: Exception) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)


def _errno(error: BaseException | None) -> int | None:
    """Return the number of the system's error behind `error`, if there is one."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            return error.errno
        error = error.__cause__ or error.__context__
    return None


def _is_missing_revision(error: Exception) -> bool:
    from huggingface_hub.errors import RevisionNotFoundError

    return isinstance(error, RevisionNotFoundError)


def _offline() -> bool:
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def _timeout() -> float:
    from huggingface_hub import constants

    return constants.HF_HUB_ETAG_TIMEOUT
