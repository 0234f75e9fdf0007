"""A corpus and a tokenizer -> a token set in the cache, made at most once."""

import hashlib
import json
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from mlxgpt.atomic import new_folder, sweep
from mlxgpt.config import require
from mlxgpt.data.config import DataConfig
from mlxgpt.data.corpus import Corpus
from mlxgpt.data.encode import chunked
from mlxgpt.data.encoders import Encoders
from mlxgpt.data.split import Split
from mlxgpt.data.token_file import TokenWriter
from mlxgpt.data.token_set import VERSION, TokenSet, write_metadata
from mlxgpt.errors import DataError
from mlxgpt.machine import cache
from mlxgpt.text import Tokenizer

# Starting a process takes longer than encoding this much.
BYTES_PER_WORKER = 2_000_000

# A temporary folder that nobody has touched for this long belongs to a killed process.
STALE_SECONDS = 24 * 3600

Progress = Callable[[int, int], None]


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    config: DataConfig,
    seed: int,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
) -> TokenSet:
    """Return the encoded training and validation text, from the cache if it is there.

    The cache (in `cache_dir`, by default the user's cache folder) is keyed by what is in the files,
    by the tokenizer, by the split and, where the split is drawn, by the seed. `workers` processes
    encode (default: as many as there are cores, none for a small corpus; 1 = only this process);
    the result does not depend on it. `progress(done, total)` counts bytes of text.

    The folder appears whole or not at all, also when the program is interrupted or two write it.
    Raises `DataError` for a source, a document or a cache that cannot be used.
    """
    require(workers is None or workers >= 1, f"'workers' must be at least 1, got {workers}")
    split = Split(corpus, config, seed)
    made_from: dict[str, Any] = {
        "version": VERSION,
        "corpus": corpus.fingerprint(),
        "tokenizer": tokenizer.content_hash,
        "split": split.kind,
        "val_fraction": config.val_fraction,
        "seed": seed if split.kind == "document" else None,
    }
    key = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()
    folder = (cache_dir or cache.cache_dir()) / "tokens" / key
    reused = folder.exists()
    if not reused:
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            sweep(folder.parent, older_than=STALE_SECONDS)
            with new_folder(folder) as temporary:
                _encode(split, tokenizer, temporary, progress, workers, key, made_from)
        except OSError as e:
            raise DataError(f"cannot write the token cache {folder}: {e.strerror or e}") from e
    return TokenSet.open(folder, tokenizer, reused=reused)


def _encode(
    split: Split,
    tokenizer: Tokenizer,
    folder: Path,
    progress: Progress | None,
    workers: int | None,
    key: str,
    made_from: dict[str, Any],
) -> None:
    total = split.total_bytes
    if workers is None:
        workers = min(os.cpu_count() or 1, 1 + total // BYTES_PER_WORKER)
    writers = {
        side: TokenWriter(folder / f"{side}.bin", tokenizer.vocab_size) for side in ("train", "val")
    }
    chunks = chain(chunked("train", split.train_documents()), chunked("val", split.val_documents()))
    done = 0
    try:
        with Encoders(tokenizer, workers) as encoders:
            for encoded in encoders.encode(chunks):
                writers[encoded.side].append(encoded.ids, encoded.num_documents, encoded.num_bytes)
                done += encoded.num_bytes
                if progress:
                    progress(done, total)
    finally:
        counts = {side: writer.close() for side, writer in writers.items()}
    write_metadata(folder, tokenizer, key, {"name": split.corpus.name, **made_from}, counts)
