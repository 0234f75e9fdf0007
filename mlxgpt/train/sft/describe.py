"""A prepared fine-tuning -> the lines that say, before the first step, what is trained on what."""

from pathlib import Path

import mlx.core as mx

from mlxgpt.model import num_parameters
from mlxgpt.train.environment import Environment
from mlxgpt.train.sft.job import SFTJob


def describe_sft(job: SFTJob, environment: Environment) -> list[str]:
    """Return the lines: base, rows, tokens, what is trained, run, machine, notes."""
    config, base = job.config, num_parameters(job.model.config)
    trained, tuning = job.tuned.num_trained, config.tuning
    what = tuning.method
    if tuning.method != "full":
        what += f" of rank {tuning.rank}, scale {tuning.scale:g}"
    if tuning.num_layers is not None:
        what += f", last {tuning.num_layers} of {job.model.config.n_layer} layers"
    rows = config.micro_batch_size * config.grad_accum_steps
    passes = job.epoch(config.num_steps)
    validated = sum(int((batch.loss_weights > 0).sum()) for batch in job.validation)
    workers = f", {config.workers} workers" if config.workers != 1 else ""
    return [
        f"base       {config.base}: {base:,} parameters",
        f"template   {job.template}",
        *job.examples.report.lines(),
        f"validate   on {validated:,} supervised tokens" if validated else "validate   on nothing",
        f"train      {trained:,} parameters ({trained / base:.2%}): {what}",
        f"run        {config.num_steps:,} steps of {rows} rows, {passes:.2f} passes, pack mode "
        f"{config.data.pack_mode}; {config.optimizer.name}, {config.dtype}",
        f"machine    {mx.default_device().type.name}{workers}, "
        f"{environment.gemm_gflops:,.0f} GFLOP/s measured",
        *(f"note       {note}" for note in (*job.notes, *environment.notes)),
    ]


def title_sft(job: SFTJob) -> str:
    """Return one line for a plot: rows, base, method, steps."""
    config = job.config
    return (
        f"{Path(config.data.train).name}: {Path(config.base).name}, {config.tuning.method}, "
        f"{config.num_steps:,} steps"
    )
