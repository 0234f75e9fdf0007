"""A tiny base, rows to learn, and fine-tunings of a few steps."""

import json
import random
from pathlib import Path
from typing import Any

import mlx.core as mx
from tiny_runs import EAGER, Recorder, ignore

from mlxgpt.checkpoint import save_model
from mlxgpt.config import build, merge
from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.text import train_bpe
from mlxgpt.train import Environment, Outcome, RunDirectory, Trainer
from mlxgpt.train.sft import SFTConfig
from mlxgpt.train.sft.job import SFTJob
from mlxgpt.train.sft.prepare import prepare_sft, prepare_sft_resume

WORDS = [
    "red",
    "green",
    "blue",
    "one",
    "two",
    "three",
    "cat",
    "dog",
    "bird",
    "runs",
    "sits",
    "sings",
]


def write_base(folder: Path, **shape: Any) -> Path:
    """Save a random model of two layers with a byte-level tokenizer."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=30)) for _ in range(20)]
    tokenizer = train_bpe(texts, 300)
    values = {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_kv_head": 1, "max_seq_len": 64, **shape}
    model = GPT(GPTConfig(**values, vocab_size=tokenizer.vocab_size))
    init_weights(model, 7)
    # Fresh models have zeros where a trained one has none, and DoRA has no direction to turn there.
    weights = model.weights()
    keys = mx.random.split(mx.random.key(3), len(weights))
    shaken = [
        w + 0.05 * mx.random.normal(w.shape, key=k)
        for w, k in zip(weights.values(), keys, strict=True)
    ]
    model.set_weights(dict(zip(weights, shaken, strict=True)))
    save_model(folder, model, tokenizer)
    return folder


def write_rows(path: Path, count: int = 24, seed: int = 1) -> Path:
    """Write questions and answers of very different lengths, as `prompt` and `completion`."""
    draw = random.Random(seed)
    rows = [
        {
            "prompt": " ".join(draw.choices(WORDS, k=draw.randint(1, 6))),
            "completion": " " + " ".join(draw.choices(WORDS, k=draw.randint(1, 12))),
        }
        for _ in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tuning(base: Path, rows: Path, **changes: Any) -> SFTConfig:
    """Return a config of 6 steps of 4 rows; `changes` are nested dicts."""
    values = {
        "base": str(base),
        "data": {"train": str(rows), "template": "plain", "val_fraction": 0.2, "max_length": 48},
        "tuning": {"rank": 2},
        "optimizer": {"max_lr": 1e-2, "weight_decay": 0.0},
        "steps": 6,
        "eval_every": 3,
        "save_every": 2,
        "workers": 1,
    }
    return build(SFTConfig, merge(values, changes))


def prepare_tuning(config: SFTConfig) -> SFTJob:
    return prepare_sft(config, ignore)


def tune_in(
    folder: Path,
    config: SFTConfig,
    *,
    stop_after: int | None = None,
    environment: Environment = EAGER,
    observer: Recorder | None = None,
) -> Outcome:
    """Fine-tune in `folder` from the first step on, at most `stop_after` steps."""
    job, run = prepare_tuning(config), RunDirectory(folder)
    trainer = Trainer(job, run, environment=environment, observer=observer)
    run.create(job.config)
    trainer.resume()
    return trainer.run(_after(stop_after))


def tune_on(folder: Path) -> Outcome:
    """Resume the fine-tuning in `folder`."""
    run = RunDirectory(folder)
    trainer = Trainer(prepare_sft_resume(run, ignore), run, environment=EAGER)
    trainer.resume()
    return trainer.run()


def _after(steps: int | None) -> Any:
    asked = iter(range(10**9))
    return lambda: steps is not None and next(asked) >= steps
