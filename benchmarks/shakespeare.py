"""The two Shakespeare configs, whole: final losses and wall time beside the reference's figures.

The reference is a PyTorch implementation of the same shapes: 1.596 nats by characters and 2.127
bits per byte by a BPE of 512, both after 1200 steps. $MLXGPT_SHAKESPEARE may name the text file,
where there is no network to fetch it from.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import show
from mlxgpt.train import RunDirectory

CONFIGS = Path(__file__).parent.parent / "configs"


def main() -> None:
    rows = []
    for name, measured, reference in (
        ("shakespeare-char", "val_loss", 1.596),
        ("shakespeare-bpe", "bits_per_byte", 2.127),
    ):
        with TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "mlxgpt", "train", "-c", str(CONFIGS / f"{name}.yaml")]
            command += ["--out", f"{folder}/run"]
            if text := os.environ.get("MLXGPT_SHAKESPEARE"):
                command += ["--corpus", text]
            began = time.perf_counter()
            subprocess.run(command, check=True)
            wall = time.perf_counter() - began
            metrics = RunDirectory(f"{folder}/run").metrics()
        validations = [r for r in metrics if "val_loss" in r]
        last = validations[-1]
        steps = [r["tok_per_sec"] for r in metrics if "loss" in r]
        rows.append(
            (
                name.removeprefix("shakespeare-"),
                f"{last['val_loss']:.4f}",
                f"{last['bits_per_byte']:.4f}",
                f"{min(r[measured] for r in validations):.4f}",
                f"{reference:.3f}",
                f"{sorted(steps)[len(steps) // 2]:,.0f}",
                f"{wall:.0f} s",
            )
        )
    show(
        "tiny Shakespeare, 1200 steps, validation on the whole last tenth",
        ("config", "val loss", "bits/byte", "best", "reference", "tokens/s", "wall"),
        rows,
        "best and reference: nats per character, bits per byte",
    )
