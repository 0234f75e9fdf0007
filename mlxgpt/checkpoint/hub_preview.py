"""A model of the Hub -> a folder that looks like it, without its weights.

Small files are downloaded. Weight files are stand-ins: the header, and after it nothing, in a file
of the full length that takes no room on the disk. So a model of any size can be described as if it
were here. It must not be loaded.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlxgpt.checkpoint.hub import (
    SMALL_FILES,
    HubModel,
    fetch,
    file_names,
    in_cache,
    wanted_files,
    why_not,
)
from mlxgpt.checkpoint.opening import local_path, named_on_hub
from mlxgpt.errors import CheckpointError

_GGUF_START = 32 * 2**20
"""Bytes of a GGUF file that are fetched: a vocabulary of 260,000 tokens takes about 10 MB."""
_MAX_HEADER = 100_000_000


@dataclass(frozen=True)
class Look:
    """Where a model can be looked at."""

    path: Path
    is_here: bool
    """Whether it is on this disk; if not, `path` is a stand-in that soon goes away."""


@contextlib.contextmanager
def to_look_at(location: str | Path) -> Iterator[Look]:
    """Give what is here or in the cache, else a stand-in for the time being.

    Raises `CheckpointError` as `local_path` does.
    """
    model = named_on_hub(location)
    if model is None:
        yield Look(local_path(location), is_here=True)
    elif (cached := in_cache(model)) is not None:
        yield Look(cached, is_here=True)
    else:
        with tempfile.TemporaryDirectory(prefix="mlxgpt-") as temporary:
            folder = Path(temporary) / model.repo.replace("/", "--")  # seen in messages
            folder.mkdir()
            yield Look(_stand_in(model, folder), is_here=False)


def _stand_in(model: HubModel, folder: Path) -> Path:
    """Fill `folder`; return it, or the one GGUF file in it."""
    try:
        wanted = wanted_files(model, file_names(model))
        small = [name for name in wanted if name in SMALL_FILES]
        if small:
            source = fetch(model, small)
            for name in small:
                (folder / name).symlink_to((source / name).resolve())
        for name in wanted:
            if name not in small:
                _fetch_start(model, name, folder / os.path.basename(name))
    except CheckpointError:
        raise
    except Exception as e:  # of several libraries, and not the same ones in each version
        raise CheckpointError(why_not(model, e)) from e
    gguf = wanted[0].lower().endswith(".gguf")
    return folder / os.path.basename(wanted[0]) if gguf else folder


def _fetch_start(model: HubModel, name: str, file: Path) -> None:
    """Write the first bytes of a file, with as much room after them as the whole file has."""
    from huggingface_hub import get_session, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    url = hf_hub_url(model.repo, name, revision=model.revision)
    session: Any = get_session()
    headers = build_hf_headers() | {"Accept-Encoding": "identity"}
    with session.stream("GET", url, headers=headers, follow_redirects=True) as answer:
        hf_raise_for_status(answer)
        size = int(answer.headers["Content-Length"])
        start = bytearray()
        for piece in answer.iter_bytes():
            start += piece
            if len(start) >= _needed(name, start):
                break
    with file.open("wb") as f:
        f.write(start[: min(_needed(name, start), size)])
        f.truncate(size)


def _needed(name: str, start: bytearray) -> int:
    """Return how many bytes hold the header, as far as `start` tells."""
    if name.lower().endswith(".gguf"):
        return _GGUF_START
    return 8 if len(start) < 8 else 8 + min(int.from_bytes(start[:8], "little"), _MAX_HEADER)
