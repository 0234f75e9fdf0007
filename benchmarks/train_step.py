"""One optimizer step of the 0.8m network, batch 24, context 128, vocabulary 512, AdamW, float32."""

from importlib.util import find_spec

import mlx.core as mx
import numpy as np

from benchmarks.harness import Case, measure
from mlxgpt.data import Batch, DataConfig
from mlxgpt.machine.gemm import measure_gemm
from mlxgpt.model import GPT, GPTConfig, init_weights, preset, train_flops_per_token
from mlxgpt.train import OptimizerConfig, TrainConfig
from mlxgpt.train.environment import blas_for_workers
from mlxgpt.train.objective import Objective
from mlxgpt.train.resolve import resolve
from mlxgpt.train.step import TrainStep

ROWS, VOCAB = 24, 512
STEPS = 5
"""In a row: the idle threads of one library spin for a while, and slow the first of the next."""


def main() -> None:
    shape = preset("0.8m")
    context = shape["max_seq_len"]
    ids = np.random.default_rng(0).integers(0, VOCAB, (ROWS, context + 1)).astype(np.int32)
    batch = Batch(ids[:, :-1], ids[:, 1:], np.ones((ROWS, context), dtype=np.float32))

    def ours(
        name: str, *, workers: int | None, optimizer: str = "adamw", compiled: bool = True
    ) -> Case:
        config = resolve(
            TrainConfig(
                data=DataConfig(corpus="none"),
                model=GPTConfig(**shape),
                optimizer=OptimizerConfig(name=optimizer),  # type: ignore[arg-type]
                workers=workers,
            ),
            VOCAB,
        )
        model = GPT(config.model)
        init_weights(model, 0)
        step = TrainStep(model, Objective(), config, compiled=compiled)
        number = 0

        def run() -> None:
            nonlocal number
            assert config.workers is not None
            with blas_for_workers(config.workers):
                for _ in range(STEPS):
                    number += 1
                    loss, _ = step.run(number, [batch])
                    mx.eval(loss, step.parameters)

        return Case(name, run, ROWS * context * STEPS)

    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    cases = [ours("mlxgpt", workers=None), ours("mlxgpt, Muon", workers=None, optimizer="muon")]
    if on_cpu:
        cases.append(ours("mlxgpt, one worker", workers=1))
    cases.append(ours("mlxgpt, eager", workers=None, compiled=False))
    if find_spec("torch"):
        from benchmarks.torch_gpt import stepper

        torch_step = stepper(GPTConfig(**shape, vocab_size=VOCAB), batch.input_ids, batch.targets)

        def torch_steps() -> None:
            for _ in range(STEPS):
                torch_step()

        cases.append(Case("PyTorch, CPU eager", torch_steps, ROWS * context * STEPS))
    title = f"{STEPS} training steps, 0.8m, 24 x 128 tokens"
    figures = measure(title, cases, unit="tokens", rounds=9)
    flops = train_flops_per_token(GPTConfig(**shape, vocab_size=VOCAB), context) * ROWS * context
    peak = measure_gemm()
    shares = ", ".join(
        f"{f.case.name} {flops * STEPS / f.median / peak / 1e9:.0%}" for f in figures
    )
    print(f"MFU against {peak:,.0f} GFLOP/s measured here: {shares}\n")
