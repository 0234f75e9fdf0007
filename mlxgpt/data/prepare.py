"""A corpus and a tokenizer -> what is trained on, in the cache and made at most once.

Encoded: a token set. Streamed: a map of the training text, and the ids of the validation text only.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from mlxgpt.atomic import new_folder, sweep
from mlxgpt.config import require
from mlxgpt.data import text_map, token_set
from mlxgpt.data.config import DataConfig
from mlxgpt.data.corpus import Corpus
from mlxgpt.data.encode import Side, chunked
from mlxgpt.data.encoders import Encoders
from mlxgpt.data.split import Split
from mlxgpt.data.text_map import TextMap, write_text_map
from mlxgpt.data.token_file import TokenFile, TokenWriter
from mlxgpt.data.token_set import TokenSet, describe_tokens, open_side
from mlxgpt.errors import DataError
from mlxgpt.machine import cache
from mlxgpt.text import Tokenizer

# Starting a process takes longer than encoding this much.
BYTES_PER_WORKER = 2_000_000

# A temporary folder that nobody has touched for this long belongs to a killed process.
STALE_SECONDS = 24 * 3600

Progress = Callable[[int, int], None]
Notice = Callable[[str], None]


def _say_nothing(*_: object) -> None: ...


@dataclass(frozen=True, eq=False)
class StreamSet:
    """A corpus whose training text is encoded only while it is trained on."""

    train: TextMap
    val: TokenFile
    reused: bool
    """Whether both were found in the cache rather than made by this call."""


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    config: DataConfig,
    seed: int,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    notice: Notice = _say_nothing,
) -> TokenSet:
    """Return the encoded training and validation text, from the cache if it is there.

    The cache (in `cache_dir`, by default the user's cache folder) is keyed by what is in the files,
    by the tokenizer, by the split and, where the split is drawn, by the seed. `workers` processes
    encode, or threads if the tokenizer uses compiled code (default: as many as there are cores,
    none for a small corpus; 1 = only this process); the result does not depend on it.
    `progress(done, total)` counts bytes of text, `notice(line)` is told when code is compiled.

    The folder appears whole or not at all, also when the program is interrupted or two write it.
    Raises `DataError` for a source, a document or a cache that cannot be used.
    """
    split = _split(corpus, config, seed, workers)
    facts = _token_facts(_facts(split), tokenizer)
    folder = (cache_dir or cache.cache_dir()) / "tokens" / _key(facts)
    encoding = _Encoding(split, tokenizer, progress or _say_nothing, workers, notice)
    reused = _make_once(folder, "token", lambda new: encoding.write(new, ("train", "val"), facts))
    return TokenSet.open(folder, tokenizer, reused=reused)


def prepare_stream(
    corpus: Corpus,
    tokenizer: Tokenizer,
    config: DataConfig,
    seed: int,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    notice: Notice = _say_nothing,
) -> StreamSet:
    """Return the mapped training text and the encoded validation text; otherwise as `prepare`.

    The map needs as much of the disk as the training text has bytes, and 8 bytes a document; it
    does not depend on the tokenizer. The validation ids are those of `prepare`.
    """
    split = _split(corpus, config, seed, workers)
    facts = _facts(split)
    place, report = cache_dir or cache.cache_dir(), progress or _say_nothing

    def write_text(new: Path) -> None:
        _need_disk(new, split.train_bytes)
        write_text_map(
            new,
            split.train_pieces(),
            _key(text_facts),
            {"name": corpus.name, **text_facts},
            lambda done: report(done, split.total_bytes),
        )

    text_facts = {"version": text_map.VERSION, **facts}
    text_folder = place / "texts" / _key(text_facts)
    text_reused = _make_once(text_folder, "text", write_text)

    token_facts = _token_facts(facts, tokenizer)
    folder = place / "tokens" / _key(token_facts)
    val_reused = folder.exists()  # of a run that encoded everything
    if not val_reused:
        folder = folder.with_name(f"{folder.name}-val")
        encoding = _Encoding(split, tokenizer, report, workers, notice)
        val_reused = _make_once(
            folder, "token", lambda new: encoding.write(new, ("val",), token_facts)
        )
    return StreamSet(
        TextMap.open(text_folder),
        open_side(folder, "val", tokenizer),
        text_reused and val_reused,
    )


def _split(corpus: Corpus, config: DataConfig, seed: int, workers: int | None) -> Split:
    require(workers is None or workers >= 1, f"'workers' must be at least 1, got {workers}")
    return Split(corpus, config, seed)


def _facts(split: Split) -> dict[str, Any]:
    """Return what the documents of both sides depend on."""
    return {
        "corpus": split.corpus.fingerprint(),
        "split": split.kind,
        "val_fraction": split.config.val_fraction,
        "seed": split.seed if split.kind == "document" else None,
    }


def _token_facts(facts: dict[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    return {"version": token_set.VERSION, "tokenizer": tokenizer.content_hash, **facts}


def _key(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _make_once(folder: Path, what: str, make: Callable[[Path], None]) -> bool:
    """Let `make` fill a folder that becomes `folder`; say whether `folder` was already there."""
    if folder.exists():
        return True
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent, older_than=STALE_SECONDS)
        with new_folder(folder) as temporary:
            make(temporary)
    except OSError as e:
        raise DataError(f"cannot write the {what} cache {folder}: {e.strerror or e}") from e
    return False


def _need_disk(folder: Path, num_bytes: int) -> None:
    """Raise `DataError` now rather than when the disk is full."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        raise DataError(
            f"streaming needs {num_bytes / 1e6:,.1f} MB for the training text in {folder.parent}, "
            f"where {free / 1e6:,.1f} MB are free; make room, or set {cache.CACHE_VARIABLE} to a "
            "folder on a larger disk"
        )


@dataclass(frozen=True)
class _Encoding:
    """How the documents of a split are encoded."""

    split: Split
    tokenizer: Tokenizer
    progress: Progress
    workers: int | None
    notice: Notice

    def write(self, folder: Path, sides: Sequence[Side], facts: dict[str, Any]) -> None:
        """Write the ids of these sides and their metadata."""
        split, tokenizer = self.split, self.tokenizer
        total = split.total_bytes
        done = 0 if "train" in sides else split.train_bytes
        workers = self.workers or min(os.cpu_count() or 1, 1 + (total - done) // BYTES_PER_WORKER)
        compiled = tokenizer.use_compiled(total - done, self.notice)
        documents = {"train": split.train_documents, "val": split.val_documents}
        writers = {
            side: TokenWriter(folder / f"{side}.bin", tokenizer.vocab_size) for side in sides
        }
        chunks = chain.from_iterable(chunked(side, documents[side]()) for side in sides)
        try:
            with Encoders(tokenizer, workers, threads=compiled) as encoders:
                for encoded in encoders.encode(chunks):
                    writers[encoded.side].append(
                        encoded.ids, encoded.num_documents, encoded.num_bytes
                    )
                    done += encoded.num_bytes
                    self.progress(min(done, total), total)
        finally:
            counts = {side: writer.close() for side, writer in writers.items()}
        made_from = {"name": split.corpus.name, **facts}
        describe_tokens(folder, tokenizer, _key(facts), made_from, counts)
