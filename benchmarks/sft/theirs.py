"""`python -m benchmarks.sft.theirs`: mlx-lm's own fine-tuning, on the BLAS that mlxgpt uses.

Writes what its trainer reports as JSON lines; the adapter lies in --out, in mlx-lm's form.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlxgpt  # noqa: F401  (loads the fast BLAS before MLX)
from mlxgpt.machine.memory import peak_rss


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sft.theirs")
    for name in ("model", "data", "out"):
        parser.add_argument(f"--{name}", required=True)
    for name, default in (("steps", 100), ("batch", 4), ("length", 256), ("rank", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--report", type=int, default=10)
    chosen = parser.parse_args()
    import mlx.optimizers as optim
    from mlx_lm.tuner.datasets import CacheDataset, load_dataset
    from mlx_lm.tuner.trainer import TrainingArgs, TrainingCallback, train
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlx_lm.utils import load

    model, tokenizer, *_ = load(chosen.model)
    settings = SimpleNamespace(
        data=chosen.data, train=True, test=False, mask_prompt=False, hf_dataset=False
    )
    training, validation, _ = load_dataset(settings, tokenizer)
    model.freeze()
    parameters = {"rank": chosen.rank, "scale": chosen.scale, "dropout": 0.0}
    linear_to_lora_layers(model, len(model.layers), parameters)
    out = Path(chosen.out)
    out.mkdir(parents=True)
    config = {"fine_tune_type": "lora", "num_layers": -1, "lora_parameters": parameters}
    (out / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")

    class Lines(TrainingCallback):
        def on_train_loss_report(self, train_info: dict[str, Any]) -> None:
            record = {**train_info, "seconds": time.perf_counter(), "rss": peak_rss()}
            print("REPORT", json.dumps(record), flush=True)

    train(
        model,
        optim.Adam(learning_rate=chosen.lr, bias_correction=True),
        CacheDataset(training),
        CacheDataset(validation),
        TrainingArgs(
            batch_size=chosen.batch,
            iters=chosen.steps,
            val_batches=1,
            steps_per_report=chosen.report,
            steps_per_eval=10**9,
            steps_per_save=10**9,
            max_seq_length=chosen.length,
            adapter_file=str(out / "adapters.safetensors"),
        ),
        training_callback=Lines(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
