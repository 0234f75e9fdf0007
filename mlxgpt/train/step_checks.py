"""Some training steps of a tiny GPT, computed in two ways that must agree on the default device.

Compiling costs a run of g++ for each kernel on a CPU, half a minute for a whole step; so there only
the loss is compiled here, which has few.
"""

import mlx.core as mx
import numpy as np

from mlxgpt import seeding
from mlxgpt.data import Batch, DataConfig
from mlxgpt.machine.compiler import compile_available
from mlxgpt.machine.device_check import HALF_AGAINST_FLOAT32, DeviceCheck, check, skipped
from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.train.config import OptimizerConfig, TrainConfig
from mlxgpt.train.objective import Objective
from mlxgpt.train.resolve import resolve
from mlxgpt.train.step import TrainStep

COMPILED = 1e-3
"""Allowed for losses and gradient norms: float32 summed in another order, carried on by AdamW."""
BFLOAT16 = 5e-2
"""Allowed for them in bfloat16: numbers of 8 bits, averaged over many tokens and weights."""

_STEPS = 4
_MODEL = GPTConfig(n_layer=1, n_embd=64, n_head=4, n_kv_head=2, vocab_size=97, max_seq_len=32)


def check_training() -> list[DeviceCheck]:
    """Check steps that are compiled, and steps in bfloat16, against eager ones in float32."""
    half = check(
        "training, bfloat16",
        HALF_AGAINST_FLOAT32,
        BFLOAT16,
        lambda: _apart(_trained("bfloat16"), _trained("float32")),
    )
    return [half, _check_compiled()]


def _check_compiled() -> DeviceCheck:
    on_cpu = mx.default_device().type == mx.DeviceType.cpu
    name, numbers = ("loss, compiled", _loss) if on_cpu else ("training, compiled", _trained)
    compiler, against = compile_available(), "compiled against eager"
    if not compiler:
        return skipped(name, against, compiler.why)
    return check(
        name,
        against,
        COMPILED,
        lambda: _apart(numbers("float32", compiled=True), numbers("float32")),
    )


def _apart(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest relative difference."""
    return float(np.max(np.abs(got - wanted) / np.abs(wanted)))


def _trained(dtype: str, *, compiled: bool = False) -> np.ndarray:
    """Train a few steps; return (loss, gradient norm) of each."""
    step = _step(dtype, compiled)
    numbers = [step.run(i, [_batch(i)]) for i in range(1, _STEPS + 1)]
    mx.eval(numbers)
    step.close()
    return np.array([[loss.item(), norm.item()] for loss, norm in numbers])


def _loss(dtype: str, *, compiled: bool = False) -> np.ndarray:
    """Return the loss before any step."""
    step = _step(dtype, compiled)
    loss, _ = step.evaluate([_batch(1)])
    step.close()
    return np.array(loss)


def _step(dtype: str, compiled: bool) -> TrainStep:
    config = TrainConfig(
        data=DataConfig(corpus="none"),
        model=_MODEL,
        # A large eps: else Adam makes a full step of the rounding error of a gradient near zero.
        optimizer=OptimizerConfig(max_lr=1e-2, warmup_steps=0, lr_schedule="constant", eps=1e-3),
        steps=_STEPS,
        micro_batch_size=2,
        dtype=dtype,  # type: ignore[arg-type]
        workers=1,
    )
    model = GPT(_MODEL)
    init_weights(model, 0)
    return TrainStep(model, Objective(), resolve(config, _MODEL.vocab), compiled=compiled)


def _batch(step: int) -> Batch:
    shape = 2, _MODEL.max_seq_len + 1
    ids = seeding.generator(0, "step-check", step).integers(0, _MODEL.vocab, shape, dtype=np.int32)
    return Batch(ids[:, :-1], ids[:, 1:], np.ones((2, _MODEL.max_seq_len), dtype=np.float32))
