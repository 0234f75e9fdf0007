"""`python -m benchmarks.sft.packed`: supervised tokens a second, packed and unpacked, in turn.

Each mode is a fine-tuning of its own in a process of its own, on the same long-tailed file.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import print_conditions, show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sft.packed")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8, help="rows of a step, unpacked")
    parser.add_argument("--length", type=int, default=1024)
    chosen = parser.parse_args()
    print_conditions()
    modes = {
        "none": ["--batch", str(chosen.batch)],
        "sequence": ["--batch", "2"],
        "bucket": ["--batch", str(chosen.batch), "--length-bucket", "6"],
        "none, 2,048 places at once": ["--batch", str(chosen.batch), "--tokens-per-batch", "2048"],
    }
    rows, first = [], 0.0
    with TemporaryDirectory() as folder:
        for number, (name, options) in enumerate(modes.items()):
            out = Path(folder) / str(number)
            command = [sys.executable, "-m", "mlxgpt", "sft", chosen.model, "--data", chosen.data]
            command += ["--out", str(out), "--steps", str(chosen.steps), "--val-fraction", "0"]
            command += ["--max-length", str(chosen.length), "--pack-mode", name.split(",")[0]]
            subprocess.run([*command, *options], check=True, capture_output=True)
            lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            steps = [r for r in map(json.loads, lines) if "loss" in r][2:]
            seconds = sum(r["num_tokens"] / r["tok_per_sec"] for r in steps)
            learned = sum(r["num_targets"] for r in steps) / seconds
            text = sum(r["num_tokens"] for r in steps) / seconds
            first = first or learned
            rows.append((name, f"{text:,.0f}", f"{learned:,.0f}", f"{learned / first:.2f}"))
    headings = ("pack mode", "tokens/s", "supervised tokens/s", "times none")
    show(f"{Path(chosen.data).name}, {chosen.steps} steps", headings, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
