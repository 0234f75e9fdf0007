"""What the machine allows a training: measured speed, compiled or eager, BLAS threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.machine.blas import set_blas_threads
from mlxgpt.machine.compiler import compile_available
from mlxgpt.machine.gemm import measure_gemm
from mlxgpt.machine.memory import total_memory
from mlxgpt.model import GPTConfig, non_embedding, num_parameters
from mlxgpt.train.config import RunConfig, TrainConfig


@dataclass(frozen=True)
class Environment:
    """What was found before the first step."""

    gemm_gflops: float
    """Speed of a matrix product in the run's dtype; 1.0 of the MFU."""
    compiled: bool
    """Whether `mx.compile` works here."""
    notes: tuple[str, ...]
    """What the user should know: why it is slower than it could be."""


def examine_environment(config: RunConfig) -> Environment:
    """Measure and try out what a run with `config` will use; takes about a second."""
    notes = []
    compiler = compile_available()
    if not compiler:
        notes.append(f"running without mx.compile: {compiler.why}")
    if config.dtype != "float32" and mx.default_device().type == mx.DeviceType.cpu:
        notes.append(f"{config.dtype} is tens of times slower than float32 on a CPU device")
    return Environment(measure_gemm(config.dtype), bool(compiler), tuple(notes))


def refuse_too_large(config: TrainConfig) -> None:
    """Raise `ConfigError` if the weights, gradients and moments alone exceed the machine's memory.

    The system would end such a process without a word. Activations come on top of this.
    """
    known = config.model.vocab_size is not None
    parameters = num_parameters(config.model) if known else non_embedding(config.model)
    needed, there = 4 * 4 * parameters, total_memory()
    require(
        there is None or needed <= there,
        f"the model has {parameters:,} parameters, and training them takes at least "
        f"{needed / 2**30:,.0f} GiB, but this machine has {(there or 0) / 2**30:,.0f} GiB of "
        "memory; choose a smaller --preset, or fewer and narrower layers",
    )


def refuse_too_large_to_tune(model: GPTConfig, *, full: bool) -> None:
    """Raise `ConfigError` if a base, with gradients and moments where all of it is trained, alone
    exceeds the machine's memory. A quantized base takes less than is reckoned with here."""
    copies, width = (4, 4) if full else (1, 0.5)
    needed, there = copies * width * num_parameters(model), total_memory()
    require(
        there is None or needed <= there,
        f"the base has {num_parameters(model):,} parameters, and fine-tuning takes at least "
        f"{needed / 2**30:,.0f} GiB, but this machine has {(there or 0) / 2**30:,.0f} GiB of "
        "memory; choose a smaller base" + (", or --method lora" if full else ""),
    )


@contextmanager
def blas_for_workers(workers: int) -> Iterator[None]:
    """One BLAS thread each while several workers run; what was set before comes back."""
    if workers == 1:
        yield
        return
    before = set_blas_threads(1)
    try:
        yield
    finally:
        if before is not None:
            set_blas_threads(before)
