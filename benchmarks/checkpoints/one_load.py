"""Loading one model in a process of its own -> seconds, and memory beyond what was there before.

`python -m benchmarks.checkpoints.one_load TOOL PATH` prints one JSON object. Imports are done
before the clock starts, and the memory that they take is subtracted.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Loaded:
    """What one load cost."""

    seconds: float
    peak_bytes: int
    """Highest resident memory, less that before the load."""
    weight_bytes: int
    """Of the arrays in the network."""

    @property
    def ratio(self) -> float:
        """Peak memory in weights."""
        return self.peak_bytes / self.weight_bytes


def load_once(tool: str, path: Path) -> Loaded:
    """Load `path` by `tool` (mlxgpt or mlx-lm) in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.checkpoints.one_load", tool, str(path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return Loaded(**json.loads(out.stdout.splitlines()[-1]))


def _by_mlxgpt(path: str) -> Callable[[], Any]:
    from mlxgpt.checkpoint import load

    return lambda: load(path)[0]


def _by_mlx_lm(path: str) -> Callable[[], Any]:
    import mlx_lm

    return lambda: mlx_lm.load(path)[0]


def _main(tool: str, path: str) -> None:
    import mlxgpt  # noqa: F401, I001  (the same BLAS for both, and before MLX)
    import mlx.core as mx
    from mlx.utils import tree_flatten

    load = {"mlxgpt": _by_mlxgpt, "mlx-lm": _by_mlx_lm}[tool](path)
    mx.eval(mx.ones(1) + 1)
    before = _resident()
    began = time.perf_counter()
    model = load()
    mx.eval(model.parameters())
    seconds = time.perf_counter() - began
    arrays: Any = tree_flatten(model.parameters())
    weight_bytes = sum(array.nbytes for _, array in arrays)
    print(
        json.dumps(
            {"seconds": seconds, "peak_bytes": _peak() - before, "weight_bytes": weight_bytes}
        )
    )


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage of a child begins with the size of its parent there
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident() -> int:
    """Return the memory in use now, or (macOS) the highest so far."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return _peak()
    return int(status.read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    _main(*sys.argv[1:])
