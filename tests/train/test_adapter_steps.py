"""Steps that train an adapter: what moves, what stays, on plain and on packed weights."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from tiny_runs import tiny

from mlxgpt import seeding
from mlxgpt.checkpoint import attach
from mlxgpt.checkpoint.adapters.fresh import fresh_adapter, train_only, trained_names
from mlxgpt.data import Batch
from mlxgpt.model import GPT, Quantization, quantize_modules
from mlxgpt.model.shared_copy import shared_copy
from mlxgpt.train.objective import Objective
from mlxgpt.train.resolve import resolve
from mlxgpt.train.step import TrainStep

Maker = Callable[..., GPT]
VOCAB, ROWS, LENGTH = 61, 4, 16
SHAPE = {"n_embd": 64, "n_layer": 3, "max_seq_len": LENGTH}
BITS = Quantization(bits=4, group_size=32)


def batch(seed: int = 0) -> Batch:
    """Rows of which the second half is to be learned."""
    draw = np.random.Generator(np.random.Philox(key=seed))
    ids = draw.integers(0, VOCAB, (ROWS, LENGTH + 1), dtype=np.int32)
    weights = np.zeros((ROWS, LENGTH), np.float32)
    weights[:, LENGTH // 2 :] = 1
    return Batch(ids[:, :-1], ids[:, 1:], weights)


def packed(model: GPT) -> GPT:
    names = [n.removesuffix(".weight") for n, w in model.weights().items() if w.ndim == 2]
    quantize_modules(model, dict.fromkeys(names, BITS))
    return model


def unpacked(model: GPT) -> GPT:
    """The plain network that a packed one stands for."""
    plain = GPT(model.config)
    for name in plain.weights():
        path, _, part = name.rpartition(".")
        module: Any = dict(model.named_modules())[path]
        if "scales" in module:
            array = BITS.dequantize({p: module[p] for p in BITS.parts}, mx.float32)
        else:
            array = module[part]
        plain.set_weights({name: array})
    return plain


def changed(model: GPT, method: Any, **how: Any) -> GPT:
    settings = {"rank": 4, "scale": 37 / 4, "dropout": 0.0, "num_layers": 2, "targets": None}
    attach(model, fresh_adapter(model, method=method, seed=3, **(settings | how)))
    return model


def step_of(model: GPT, **objective: Any) -> TrainStep:
    optimizer = {"max_lr": 1e-2, "weight_decay": 0.0, "warmup_steps": 0}
    config = resolve(tiny(Path("unused"), optimizer=optimizer, steps=40), VOCAB)
    return TrainStep(model, Objective(**objective), config, compiled=False)


METHODS = pytest.mark.parametrize("method", ["lora", "dora"])
BASES = pytest.mark.parametrize("quantized", [False, True], ids=["float", "4 bits"])


@METHODS
@BASES
def test_the_loss_falls_and_the_base_never_moves(
    random_gpt: Maker, method: str, quantized: bool
) -> None:
    model = packed(random_gpt(**SHAPE)) if quantized else random_gpt(**SHAPE)
    before = {name: mx.array(w) for name, w in model.weights().items()}
    changed(model, method)
    step = step_of(model, adapter_dropout=0.05)
    losses = [step.run(i, [batch()])[0].item() for i in range(1, 21)]
    assert losses[-1] < 0.8 * losses[0]
    parts = ("lora_a", "lora_b", "m") if method == "dora" else ("lora_a", "lora_b")
    projections = [
        *(f"self_attn.{x}" for x in "qkvo"),
        *(f"mlp.{x}" for x in ("gate", "up", "down")),
    ]
    expected = {
        f"model.layers.{i}.{name}_proj.{part}"
        for i in (1, 2)
        for name in projections
        for part in parts
    }
    trained = dict(tree_flatten(step.parameters))
    assert set(trained) == expected
    model.update(step.parameters)
    after = {n.replace(".linear.", "."): w for n, w in model.weights().items() if n not in expected}
    assert after.keys() == before.keys()
    assert all(mx.array_equal(w, before[name]) for name, w in after.items())
    step.close()


@METHODS
def test_packed_weights_give_the_gradients_of_what_they_stand_for(
    random_gpt: Maker, method: str
) -> None:
    def gradients(model: GPT) -> tuple[float, dict[str, mx.array]]:
        changed(model, method)
        objective = Objective(checkpoint_layers=True, logits_chunk=9)
        inputs = objective.inputs(batch())

        def loss(trained: dict) -> mx.array:
            model.update(trained)
            return objective.nll(model, inputs, seeding.key(0, "test"))

        start = {
            name: mx.random.normal(p.shape, key=seeding.key(0, name)) / 16 + ("m" in name[-2:])
            for name, p in tree_flatten(model.trainable_parameters())
        }
        model.load_weights(list(start.items()), strict=False)
        value, found = mx.value_and_grad(loss)(model.trainable_parameters())
        return value.item(), dict(tree_flatten(found))

    model = packed(random_gpt(**SHAPE))
    plain = unpacked(model)
    assert not any(name.endswith(".scales") for name in plain.weights())
    value, found = gradients(model)
    again, expected = gradients(plain)
    assert any(name.endswith(".scales") for name in model.weights())
    assert value == pytest.approx(again, rel=1e-5)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        most = float(mx.abs(gradient).max().item())
        assert most > 0
        assert mx.abs(found[name] - gradient).max().item() <= 1e-4 * most, name


def test_dropout_is_part_of_a_step_and_not_of_an_evaluation(random_gpt: Maker) -> None:
    plain = step_of(changed(random_gpt(**SHAPE), "lora", targets=("q_proj", "down_proj")))
    dropped = step_of(
        changed(random_gpt(**SHAPE), "lora", targets=("q_proj", "down_proj")), adapter_dropout=0.5
    )
    for i in range(1, 4):  # with `b` zero the first step sees nothing of it but in its gradient
        plain.run(i, [batch(i)])
        dropped.run(i, [batch(i)])
    assert plain.evaluate([batch()])[0] != dropped.evaluate([batch()])[0]
    plain.parameters = dropped.parameters
    assert plain.evaluate([batch()])[0] == dropped.evaluate([batch()])[0]
    assert plain.run(4, [batch()])[0].item() != dropped.run(4, [batch()])[0].item()


@pytest.mark.slow
@METHODS
def test_compiled_steps_are_eager_steps(random_gpt: Maker, method: str) -> None:
    """With everything at once: packed weights, dropout, chunks, blocks computed again."""
    finals = []
    for compiled in (False, True):
        model = changed(packed(random_gpt(**SHAPE)), method)
        objective = Objective(adapter_dropout=0.2, checkpoint_layers=True, logits_chunk=7)
        optimizer = {"max_lr": 1e-2, "eps": 1e-3}
        config = resolve(tiny(Path("unused"), optimizer=optimizer, workers=2), VOCAB)
        step = TrainStep(model, objective, replace(config, workers=2), compiled=compiled)
        losses = [step.run(i, [batch(i)])[0].item() for i in range(1, 4)]
        finals.append((losses, dict(tree_flatten(step.parameters))))
        step.close()
    (losses, eager), (more, compiled_) = finals
    assert more == pytest.approx(losses, rel=1e-5)
    for name, array in eager.items():
        assert mx.allclose(array, compiled_[name], rtol=1e-3, atol=1e-4), name


def test_the_last_layers_alone_can_be_trained(random_gpt: Maker) -> None:
    model = random_gpt(**SHAPE, qkv_bias=True)
    names = trained_names(model.config, 1)
    before = {name: mx.array(w) for name, w in model.weights().items()}
    adapter = train_only(model, names)
    assert adapter is not None
    step = step_of(model)
    assert set(dict(tree_flatten(step.parameters))) == names == set(adapter.weights)
    losses = [step.run(i, [batch()])[0].item() for i in range(1, 11)]
    assert losses[-1] < losses[0]
    model.update(step.parameters)
    moved = {name for name, w in model.weights().items() if not mx.array_equal(w, before[name])}
    assert moved == names


@METHODS
@BASES
def test_in_half_precision_the_first_loss_is_that_of_the_base(
    random_gpt: Maker, method: str, quantized: bool
) -> None:
    """The lengths of DoRA's rows are kept from before the base became half precision."""
    base = random_gpt(**SHAPE)
    if quantized:
        base.set_dtype(mx.float16)  # whose scales then become bfloat16
        packed(base)
    model = shared_copy(base)
    expected = step_of(base).evaluate([batch()])[0]
    changed(model, method, num_layers=None)
    losses = []
    for chunk in (None, 7):
        config = resolve(tiny(Path("unused"), dtype="bfloat16", optimizer={"max_lr": 1e-2}), VOCAB)
        step = TrainStep(model, Objective(logits_chunk=chunk), config, compiled=False)
        assert step.evaluate([batch()])[0] == pytest.approx(expected, rel=0.01)
        assert all(p.dtype == mx.float32 for _, p in tree_flatten(step.parameters))
        losses.append([step.run(i, [batch()])[0].item() for i in range(1, 11)])
    assert losses[0][-1] < 0.9 * losses[0][0]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
