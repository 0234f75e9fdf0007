"""Whatever gives a model other numbers by giving it other objects is noticed."""

import gc
from collections.abc import Callable

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlxgpt.infer.network.weight_watch import WeightWatch
from mlxgpt.model import GPT
from mlxgpt.model.lora import adapted

Make = Callable[..., GPT]
Change = Callable[[GPT], object]


def attach(model: GPT) -> None:
    a, b = mx.zeros((32, 2)), mx.zeros((2, 32))
    attention = model.layers[1].self_attn
    attention.q_proj = adapted(attention.q_proj, a, b, 1.0)


def all_anew(model: GPT) -> None:
    model.set_weights({name: w + 0 for name, w in model.weights().items()})


def one_anew(model: GPT) -> None:
    model.set_weights({"model.layers.1.mlp.up_proj.weight": mx.zeros((96, 32))})


def other_scale(model: GPT) -> None:
    model.layers[0].self_attn.o_proj.scale = 3.0


def other_eps(model: GPT) -> None:
    model.model.norm.eps = 1e-3


def a_bias(model: GPT) -> None:
    model.layers[0].mlp.gate_proj.bias = mx.zeros((96,))


def one_block_less(model: GPT) -> None:
    model.layers.pop()


def blocks_in_another_order(model: GPT) -> None:
    model.layers.reverse()


CHANGES: list[Change] = [
    all_anew,
    one_anew,
    attach,
    other_scale,
    other_eps,
    a_bias,
    one_block_less,
    blocks_in_another_order,
    lambda m: m.model.norm.update({"weight": mx.ones((32,))}),
    lambda m: m.set_dtype(mx.float16),
    lambda m: nn.quantize(m, group_size=32),
]
NO_CHANGES: list[Change] = [
    lambda m: mx.eval(m(mx.array([[1, 2, 3]]))),
    lambda m: m.weights(),
    lambda m: m.eval(),
    lambda m: m.freeze(),
    lambda m: m.set_weights(m.weights()),
]


@pytest.fixture
def gpt(random_gpt: Make) -> GPT:
    model = random_gpt()
    projection = model.layers[0].self_attn
    a, b = mx.ones((32, 2)), mx.ones((2, 32))
    projection.o_proj = adapted(projection.o_proj, a, b, 1.0)
    return model


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: Change, gpt: GPT) -> None:
    watch = WeightWatch(gpt)
    assert not watch.changed()
    change(gpt)
    assert watch.changed()
    assert watch.changed()
    assert not WeightWatch(gpt).changed()


@pytest.mark.parametrize("use", NO_CHANGES)
def test_use_is_no_change(use: Change, gpt: GPT) -> None:
    watch = WeightWatch(gpt)
    use(gpt)
    assert not watch.changed()


def test_weights_set_many_times_over_are_never_taken_for_the_first(gpt: GPT) -> None:
    watch = WeightWatch(gpt)
    for _ in range(30):  # new objects may lie where the first ones lay
        all_anew(gpt)
        assert watch.changed()


def test_nothing_is_kept_in_memory(random_gpt: Make) -> None:
    model = random_gpt(n_embd=256)
    before = mx.get_active_memory()
    watches = []
    for _ in range(3):
        all_anew(model)
        mx.eval(model.parameters())
        watches.append(WeightWatch(model))
    gc.collect()
    assert mx.get_active_memory() - before < 100_000
    assert [watch.changed() for watch in watches] == [True, True, False]
    del model
    gc.collect()
    assert watches[2].changed()
