"""`python -m benchmarks.sft.training`: LoRA on the same rows as mlx-lm, each in its own process.

Same base, rank, scale, matrices, rows, learning rate, steps; Adam without decay, no warm-up. The
validation loss of both adapters is measured by one and the same code.
"""

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
import numpy as np

from benchmarks.harness import print_conditions, show
from mlxgpt import load
from mlxgpt.data.sft.batching import validation_batches
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.forms import Passage, recognise
from mlxgpt.data.sft.row_files import read_rows
from mlxgpt.data.sft.row_folder import find_files
from mlxgpt.model import GPT
from mlxgpt.train.objective import Objective

RANK, SCALE, RATE = 8, 2.0, 2e-4


@dataclass(frozen=True)
class Run:
    """What came of one fine-tuning."""

    adapter: Path
    tokens: float
    """Trained tokens a second, median over the reports but the first."""
    arrays: int
    """Peak bytes in MLX's arrays."""
    process: int
    """Peak resident bytes."""
    loss: float
    """Of the last steps' training rows."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sft.training")
    parser.add_argument("--model", required=True, help="float32 directory that mlx-lm reads, too")
    parser.add_argument("--data", required=True, help="folder with train.jsonl and valid.jsonl")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    print_conditions()
    rows, speeds = [], {"mlx-lm": [], "mlxgpt": []}
    with TemporaryDirectory() as folder:
        for number in range(chosen.rounds):
            for name, run in (("mlx-lm", theirs), ("mlxgpt", ours)):
                done = run(chosen, Path(folder) / f"{name}-{number}")
                speeds[name].append(done.tokens)
                loss = validation_loss(chosen, done.adapter)
                rows.append(
                    (
                        name,
                        f"{done.tokens:,.0f}",
                        f"{done.arrays / 2**20:,.0f} MiB",
                        f"{done.process / 2**20:,.0f} MiB",
                        f"{done.loss:.4f}",
                        f"{loss:.4f}",
                    )
                )
        base = validation_loss(chosen, None)
    rows.append(("the base", "", "", "", "", f"{base:.4f}"))
    headings = ("", "tokens/s", "arrays", "process", "training loss", "validation loss")
    show(f"LoRA, {chosen.steps} steps of {chosen.batch} rows", headings, rows)
    ratio = statistics.median(speeds["mlxgpt"]) / statistics.median(speeds["mlx-lm"])
    print(f"mlxgpt trains {ratio:.2f} times the tokens a second of mlx-lm")
    return 0


def theirs(chosen: argparse.Namespace, out: Path) -> Run:
    command = [sys.executable, "-m", "benchmarks.sft.theirs", "--model", chosen.model]
    command += ["--data", chosen.data, "--out", str(out), "--steps", str(chosen.steps)]
    command += ["--batch", str(chosen.batch), "--length", str(chosen.length)]
    command += ["--rank", str(RANK), "--scale", str(SCALE), "--lr", str(RATE)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    reports = [json.loads(x.removeprefix("REPORT ")) for x in lines if x.startswith("REPORT ")]
    return Run(
        out,
        statistics.median(r["tokens_per_second"] for r in reports[1:]),
        int(max(r["peak_memory"] for r in reports) * 1e9),
        max(r["rss"] for r in reports),
        reports[-1]["train_loss"],
    )


def ours(chosen: argparse.Namespace, out: Path) -> Run:
    command = [sys.executable, "-m", "mlxgpt", "sft", chosen.model, "--data", chosen.data]
    command += ["--out", str(out), "--steps", str(chosen.steps), "--batch", str(chosen.batch)]
    command += ["--max-length", str(chosen.length), "--rank", str(RANK), "--scale", str(SCALE)]
    command += ["--max-lr", str(RATE), "--lr-schedule", "constant", "--warmup", "0"]
    command += ["--set", "optimizer.grad_clip=0", "--set", "optimizer.beta2=0.999"]
    command += ["--eval-every", str(chosen.steps)]
    subprocess.run(command, check=True, capture_output=True)
    text = (out / "metrics.jsonl").read_text(encoding="utf-8")
    records: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    steps = [r for r in records if "loss" in r]
    last = next(r for r in reversed(records) if "mlx_peak_bytes" in r)
    return Run(
        out,
        statistics.median(r["tok_per_sec"] for r in steps[10:]),
        last["mlx_peak_bytes"],
        last["rss_peak_bytes"],
        statistics.mean(r["loss"] for r in steps[-10:]),
    )


def validation_loss(chosen: argparse.Namespace, adapter: Path | None) -> float:
    """Return the loss on the tokens of the validation texts, by our own evaluation.

    Only what both have trained on counts: neither what may stand before a text, nor its end, for
    which they take different tokens.
    """
    model, tokenizer = load(chosen.model, adapter)
    assert isinstance(model, GPT)
    examples = []
    for row in read_rows(find_files(chosen.data)[1] or chosen.data):
        form = recognise(row)
        assert isinstance(form, Passage), "rows of texts are wanted here"
        ids = np.array(tokenizer.encode(form.text)[: chosen.length], dtype=np.int32)
        examples.append(Example(ids, np.arange(len(ids)) > 0))
    objective, total, count = Objective(), 0.0, 0.0
    for batch in validation_batches(examples, chosen.batch):
        nll = objective.nll(model, objective.inputs(batch), None)
        mx.eval(nll)
        total += float(nll.item())
        count += float(batch.loss_weights.sum())
    return total / count


if __name__ == "__main__":
    sys.exit(main())
