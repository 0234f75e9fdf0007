"""Settings that depend on others or on the machine -> numbers, so that `run.yaml` says them all."""

import os
from dataclasses import replace

import mlx.core as mx

from mlxgpt.data import absolute
from mlxgpt.train.config import RunConfig, TrainConfig


def resolve(config: TrainConfig, vocab_size: int) -> TrainConfig:
    """Return `config` with every `None` that has a meaning replaced by what it means.

    Raises `ConfigError` if the model's vocabulary is smaller than `vocab_size`.
    """
    optimizer = config.optimizer
    tenth = max(1, config.steps // 10)
    eval_every = config.eval_every or tenth
    return replace(
        config,
        data=replace(config.data, corpus=absolute(config.data.corpus)),
        model=config.model.for_vocab(vocab_size),
        optimizer=replace(
            optimizer,
            max_lr=optimizer.max_lr or 3e-3 * (128 / config.model.n_embd) ** 0.75,
            warmup_steps=config.steps * 3 // 100
            if optimizer.warmup_steps is None
            else optimizer.warmup_steps,
        ),
        eval_every=eval_every,
        save_every=config.save_every or eval_every,
        workers=num_workers(config),
    )


def num_workers(config: RunConfig) -> int:
    """Return how many threads share a micro-batch: 1 on a GPU, which needs no help."""
    if mx.default_device().type != mx.DeviceType.cpu:
        return 1
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    return min(config.workers or cores, config.micro_batch_size)
