"""The loss by chunks is the loss: every token, every gradient, and never all logits at once."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx.utils import tree_flatten

from mlxgpt import seeding
from mlxgpt.model import GPT, Dropout, Quantization, quantize_modules
from mlxgpt.model.chunked_loss import chunked_nll, evaluated_nll, tokens_at_once, weighted_nll
from mlxgpt.model.lora import adapted, row_lengths

Maker = Callable[..., GPT]
KEY = seeding.key(0, "test/chunks")
TOKENS, VOCAB, WIDTH = 23, 61, 32
draw = np.random.Generator(np.random.Philox(key=8))
FEATURES = mx.array(draw.normal(size=(TOKENS, WIDTH)).astype(np.float32))
TARGETS = mx.array(draw.integers(0, VOCAB, TOKENS))
WEIGHTS = mx.array((draw.random(TOKENS) * (draw.random(TOKENS) < 0.8)).astype(np.float32))


def network(random_gpt: Maker, kind: str) -> GPT:
    """With the head of its own, or tied; trained, frozen, quantized, or with a change."""
    model = random_gpt(tie_embeddings="tied" in kind)
    path = "model.embed_tokens" if "tied" in kind else "lm_head"
    if "4 bits" in kind:
        quantize_modules(model, {path: Quantization(bits=4, group_size=32)})
    if "trained" not in kind:
        model.freeze()
    if "lora" in kind or "dora" in kind:
        shapes = ((VOCAB, 4), (4, WIDTH)) if "tied" in kind else ((WIDTH, 4), (4, VOCAB))
        a, b = (mx.random.normal(s, key=seeding.key(i, "ab")) / 4 for i, s in enumerate(shapes))
        base = model.head_module
        changed = adapted(base, a, b, 2.0, row_lengths(base) if "dora" in kind else None)
        if "tied" in kind:
            model.model.embed_tokens = changed
        else:
            model.lm_head = changed
    return model


def gradients(model: GPT, nll: Callable[..., mx.array], *more: Any) -> tuple[mx.array, Any]:
    """The loss times 1.7, with respect to the trained weights and the features."""

    def loss(trained: dict, features: mx.array) -> mx.array:
        model.update(trained)
        return 1.7 * nll(model, features, TARGETS, WEIGHTS, *more)

    start = model.trainable_parameters()
    value, found = mx.value_and_grad(loss, argnums=(0, 1))(start, FEATURES)
    model.update(start)
    return value, dict(tree_flatten(found))


KINDS = [
    "trained",
    "trained, tied",
    "frozen",
    "frozen, tied",
    "frozen, 4 bits",
    "frozen, tied, 4 bits",
    "lora",
    "lora, tied",
    "lora, 4 bits",
    "dora, tied, 4 bits",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 2, 7, 22, 23, 100])
def test_loss_and_gradients_are_those_of_all_at_once(
    random_gpt: Maker, kind: str, chunk: int
) -> None:
    model = network(random_gpt, kind)
    value, whole = gradients(model, weighted_nll, None)
    head = "" if "frozen" in kind else "embed_tokens" if "tied" in kind else "lm_head"
    assert sum(mx.abs(g).max().item() > 0.1 for n, g in whole.items() if head in n) >= 1
    for nll, more in ((chunked_nll, (None, chunk)), (evaluated_nll, (chunk,))):
        again, parts = gradients(model, nll, *more)
        assert again.item() == pytest.approx(value.item(), rel=1e-6)
        assert parts.keys() == whole.keys()
        for name, gradient in whole.items():
            most = float(mx.abs(gradient).max().item())
            assert mx.abs(parts[name] - gradient).max().item() <= 2e-6 * most, name


@given(st.integers(1, TOKENS), st.integers(0, TOKENS - 1))
def test_each_token_counts_once_wherever_the_cuts_are(chunk: int, place: int) -> None:
    """With one weight that is not 0, the loss is that token's."""
    model, one = HEAD, mx.arange(TOKENS) == place
    expected = weighted_nll(model, FEATURES[place], TARGETS[place], mx.array(1.0), None)
    got = chunked_nll(model, FEATURES, TARGETS, one.astype(mx.float32), None, chunk)
    assert got.item() == pytest.approx(expected.item(), rel=1e-5)


class Head:
    """A head alone, as far as the loss looks at a network."""

    def __init__(self) -> None:
        self.head_module = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head_module.weight = mx.random.normal((VOCAB, WIDTH), key=KEY)

    def head(self, features: mx.array, dropout: Dropout | None, piece: int) -> mx.array:
        return self.head_module(features)


HEAD: Any = Head()


def test_a_change_of_the_head_has_its_dropout_another_one_in_each_chunk(random_gpt: Maker) -> None:
    model = network(random_gpt, "lora")
    same = mx.broadcast_to(FEATURES[:1], (8, WIDTH))
    targets, weights, drop = mx.zeros(8, dtype=mx.int32), mx.ones(8), Dropout(0.0, KEY, 0.5)
    losses = [
        weighted_nll(model, same[:1], targets[:1], weights[:1], drop, piece).item()
        for piece in range(8)
    ]
    assert len(set(losses)) == 8
    total = chunked_nll(model, same, targets, weights, drop, 1)
    assert total.item() == pytest.approx(sum(losses), rel=1e-6)
    assert chunked_nll(model, same, targets, weights, drop, 1).item() == total.item()


@pytest.mark.parametrize("kind", ["trained, tied", "frozen"])
def test_the_logits_are_never_all_there(random_gpt: Maker, kind: str) -> None:
    model = random_gpt(vocab_size=4000, tie_embeddings="tied" in kind)
    if kind == "frozen":
        model.freeze()
    tokens = 512
    features = mx.random.normal((tokens, WIDTH), key=KEY)
    targets, weights = mx.zeros(tokens, dtype=mx.int32), mx.ones(tokens)

    def peak(nll: Callable[..., mx.array], *more: Any) -> int:
        def loss(trained: dict, x: mx.array) -> mx.array:
            model.update(trained)
            return nll(model, x, targets, weights, *more)

        start = model.trainable_parameters()
        mx.eval(start, features)
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(mx.value_and_grad(loss, argnums=(0, 1))(start, features))
        model.update(start)
        return mx.get_peak_memory() - before

    assert peak(chunked_nll, None, tokens // 16) < 0.25 * peak(weighted_nll, None)


def test_the_default_is_in_bytes() -> None:
    assert tokens_at_once(50_000) == 335
    assert tokens_at_once(64) == 262_144
    assert tokens_at_once(10**9) == 1
