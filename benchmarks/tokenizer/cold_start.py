"""A cache folder, empty and then full -> seconds until the kernels can work in a new process."""

import os
import subprocess
import sys
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from benchmarks.harness import show
from benchmarks.tokenizer.ours import NOT_COMPILED
from benchmarks.tokenizer.settings import Settings
from mlxgpt.machine.cache import CACHE_VARIABLE
from mlxgpt.text.compiled.tier import compiled_available

TARGET = 8.0
"""Seconds for all kernels the first time."""
PROGRAM = """
import sys, time
import mlxgpt.text
from mlxgpt.text.compiled.tier import warm_up
before = time.process_time()
for purpose in sys.argv[1:]:
    began = time.perf_counter()
    warm_up(None, purpose)
    print(time.perf_counter() - began)
print(time.process_time() - before)
"""


def run(settings: Settings) -> None:
    if not compiled_available():
        print(NOT_COMPILED)
        return
    purposes = settings.cold_starts
    with TemporaryDirectory() as folder:
        rows = [_row(name, folder, purposes) for name in ("empty", "full")]
    show(
        "seconds until the kernels can work, in a new process",
        ("cache", *(f"for {purpose}" for purpose in purposes), "in all", "CPU", "target"),
        rows,
        "the first one imports numba; CPU is in all, whoever else uses the machine",
        keep=settings.keep,
    )


def _row(name: str, cache: str, purposes: Sequence[str]) -> tuple[str, ...]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *purposes],
        env={**os.environ, CACHE_VARIABLE: cache},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the kernels could not be compiled in a new process:\n{done.stderr}")
    *seconds, cpu = map(float, done.stdout.split())
    verdict = ""
    if name == "empty":
        verdict = f"{TARGET:g} {'met' if sum(seconds) <= TARGET else 'MISSED'}"
    return name, *(f"{s:.2f}" for s in (*seconds, sum(seconds), cpu)), verdict
