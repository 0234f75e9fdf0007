"""Blocks that are computed again on the way back: the same gradient from less memory."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from mlxgpt import seeding
from mlxgpt.model import (
    GPT,
    Attend,
    CausalAttend,
    Dropout,
    GPTConfig,
    Quantization,
    SegmentAttend,
    init_weights,
    quantize_modules,
)
from mlxgpt.model.lora import adapted, row_lengths
from mlxgpt.model.recomputing import holding

Maker = Callable[..., GPT]
IDS = mx.array([[5, 6, 7, 8, 9, 10, 11, 12], [1, 2, 3, 4, 1, 2, 3, 4]])
SEGMENTS = mx.array([[1, 1, 1, 2, 2, 3, 3, 3], [1, 2, 2, 2, 2, 2, 2, 3]])
KEY = seeding.key(0, "test/recomputing")
BITS = Quantization(bits=4, group_size=32)


def prepared(model: GPT, kind: str) -> GPT:
    """Freeze what is not trained: nothing, the first layer, or all but changes of the queries."""
    if kind == "whole":
        return model
    model.freeze()
    if kind == "last layer":
        model.layers[-1].unfreeze()
        return model
    for i, block in enumerate(model.layers):
        if "4 bits" in kind:
            quantize_modules(block, {"self_attn.q_proj": BITS, "mlp.up_proj": BITS})
        base = block.self_attn.q_proj
        a, b = (mx.random.normal(s, key=seeding.key(i, "ab")) / 4 for s in ((64, 4), (4, 64)))
        m = row_lengths(base) if "dora" in kind else None
        block.self_attn.q_proj = adapted(base, a, b, 2.0, m)
    return model


def gradients(model: GPT, attend: Attend, dropout: bool, recompute: bool, how: Any) -> Any:
    def loss(trained: dict, key: mx.array) -> mx.array:
        model.update(trained)
        drop = Dropout(0.1, key, 0.2) if dropout else None
        features = model.features(IDS, attend, drop, recompute=recompute)
        return (features * mx.arange(1, 65)).square().mean()

    start = model.trainable_parameters()
    value, found = how(mx.value_and_grad(loss))(start, KEY)
    model.update(start)
    return value, dict(tree_flatten(found))


KINDS = ["whole", "last layer", "lora", "dora", "lora on 4 bits", "dora on 4 bits"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [False, True], ids=["one text", "packed"])
@pytest.mark.parametrize("dropout", [False, True], ids=["no dropout", "dropout"])
def test_loss_and_gradients_are_the_same(
    random_gpt: Maker, kind: str, packed: bool, dropout: bool
) -> None:
    model = prepared(random_gpt(n_layer=3, n_embd=64), kind)
    attend = SegmentAttend(SEGMENTS) if packed else CausalAttend()
    held = model.weights()
    value, kept = gradients(model, attend, dropout, False, lambda f: f)
    again, recomputed = gradients(model, attend, dropout, True, lambda f: f)
    assert mx.array_equal(value, again)
    assert kept.keys() == recomputed.keys()
    for name, gradient in kept.items():
        assert mx.abs(gradient).max().item() > 0 or "embed" in name
        assert mx.allclose(gradient, recomputed[name], rtol=1e-5, atol=1e-6 * scale(kept)), name
    assert all(w is held[name] for name, w in model.weights().items()), "the network is as it was"


def scale(arrays: dict[str, mx.array]) -> float:
    return max(float(mx.abs(array).max().item()) for array in arrays.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["whole", "dora on 4 bits"])
def test_it_works_inside_a_compiled_function(random_gpt: Maker, kind: str) -> None:
    model = prepared(random_gpt(n_layer=2, n_embd=64), kind)
    attend = SegmentAttend(SEGMENTS)
    value, eager = gradients(model, attend, True, True, lambda f: f)
    again, compiled = gradients(model, attend, True, True, mx.compile)
    assert value.item() == pytest.approx(again.item(), rel=1e-5)
    for name, gradient in eager.items():
        assert mx.allclose(gradient, compiled[name], rtol=1e-4, atol=1e-5 * scale(eager)), name


def test_it_holds_less() -> None:
    model = GPT(GPTConfig(n_layer=12, n_embd=64, n_head=2, vocab_size=32, max_seq_len=256))
    init_weights(model, 0)
    ids = mx.zeros((2, 256), dtype=mx.int32)

    def peak(recompute: bool) -> int:
        def loss(trained: dict) -> mx.array:
            model.update(trained)
            return model.features(ids, recompute=recompute).square().mean()

        start = model.trainable_parameters()
        mx.eval(start)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.grad(loss)(start))
        model.update(start)
        return mx.get_peak_memory() - before

    assert peak(True) < 0.5 * peak(False)


def test_other_weights_are_held_for_a_while_only(random_gpt: Maker) -> None:
    model = random_gpt()
    before, plain = model.weights(), model(IDS)
    with pytest.raises(ZeroDivisionError):
        with holding(model.model.norm, {"weight": mx.zeros(32)}):
            assert (model(IDS) == 0).all()
        assert mx.array_equal(model(IDS), plain)
        with holding(model.model.norm, {"weight": mx.zeros(32)}):
            raise ZeroDivisionError
    assert all(w is before[name] for name, w in model.weights().items())
