"""Dropout of what low-rank parts are fed with: a function of a key, and gone when the pass is."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map

from mlxgpt import seeding
from mlxgpt.model import GPT, CausalAttend, Dropout, SegmentAttend
from mlxgpt.model.lora import ADAPTED, adapted, dropping, row_lengths

Maker = Callable[..., GPT]
WIDTH, OUT, RANK, SCALE = 32, 24, 4, 1.5
KEY = seeding.key(0, "test/dropout")
PLAIN = CausalAttend()


def noise(purpose: str, *shape: int) -> mx.array:
    return mx.random.normal(shape, key=seeding.key(0, f"test/{purpose}"))


def module(kind: str, dora: bool) -> Any:
    """A linear module, quantized or not, or an embedding, with a change that matters."""
    base: nn.Module = nn.Embedding(OUT, WIDTH) if kind == "embedding" else nn.Linear(WIDTH, OUT)
    base["weight"] = noise("w", OUT, WIDTH) / 6
    if kind == "4 bits":
        assert isinstance(base, nn.Linear)
        base = base.to_quantized(32, 4)
    first, last = (OUT, WIDTH) if kind == "embedding" else (WIDTH, OUT)
    m = 1.3 * row_lengths(base) if dora else None
    return adapted(base, noise("a", first, RANK) / 3, noise("b", RANK, last) / 3, SCALE, m)


KINDS = pytest.mark.parametrize("kind", ["linear", "4 bits", "embedding", "head"])
METHODS = pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
X = noise("x", 5, WIDTH)
IDS = mx.array([0, 3, 3, 7, OUT - 1])


def made(kind: str, dora: bool) -> tuple[Any, Callable[[], mx.array]]:
    """A module, and what it computes of a fixed input."""
    it = module("embedding" if kind == "head" else kind, dora)
    if kind == "embedding":
        return it, lambda: it(IDS)
    return it, (lambda: it.as_linear(X)) if kind == "head" else lambda: it(X)


@KINDS
@METHODS
def test_the_mean_over_many_keys_is_what_there_is_without(kind: str, dora: bool) -> None:
    it, compute = made(kind, dora)
    plain, count = np.array(compute()), 3000
    seen = []
    for i in range(count):
        with dropping(it, Dropout(0.25, seeding.key(i, "test"))):
            seen.append(compute())
    mx.eval(seen)
    values = np.stack([np.array(one) for one in seen])
    total, error = values.mean(0), values.std(0) / count**0.5
    assert values.std(0).min() > 0
    assert (np.abs(total - plain) < 5 * error + 1e-5).all()
    assert np.array_equal(np.array(compute()), plain), "nothing is left of it"


@KINDS
@METHODS
def test_a_key_decides_and_no_rate_is_no_dropout(kind: str, dora: bool) -> None:
    it, compute = made(kind, dora)
    plain = compute()

    def dropped(rate: float, key: mx.array = KEY) -> mx.array:
        with dropping(it, Dropout(rate, key)):
            return compute()

    assert mx.array_equal(dropped(0.5), dropped(0.5))
    assert not mx.array_equal(dropped(0.5), dropped(0.5, seeding.key(1, "test/dropout")))
    assert not mx.array_equal(dropped(0.5), plain)
    assert mx.array_equal(dropped(0.0), plain)
    with dropping(it, None):
        assert mx.array_equal(compute(), plain)


@METHODS
def test_the_base_sees_all_of_the_input_and_the_change_a_scaled_part(dora: bool) -> None:
    it, rate = module("linear", dora), 0.4
    with dropping(it, Dropout(rate, KEY)):
        out = it(X)
    masked = Dropout(rate, KEY)(X, 0)
    assert 0.1 < float((masked == 0).mean().item()) < 0.7
    y = X @ it.linear.weight.T + SCALE * (masked @ it.lora_a) @ it.lora_b
    if dora:
        y = y * (
            it.m / mx.linalg.norm(it.linear.weight + SCALE * (it.lora_a @ it.lora_b).T, axis=1)
        )
    assert mx.allclose(out, y + it.linear.bias, rtol=1e-5, atol=1e-5)


def test_an_id_is_hidden_as_a_whole() -> None:
    it = module("embedding", False)
    ids = mx.arange(OUT)
    with dropping(it, Dropout(0.5, KEY)):
        change = np.array(it(ids) - it.embedding(ids))
    whole = np.array(it(ids) - it.embedding(ids))
    kept = np.abs(change).max(1) > 1e-6
    assert 3 < kept.sum() < OUT - 3
    assert np.allclose(change[kept], 2 * whole[kept], atol=1e-5)


def test_an_error_leaves_nothing_behind() -> None:
    it = module("linear", False)
    plain = it(X)
    with pytest.raises(ZeroDivisionError), dropping(it, Dropout(0.5, KEY)):
        raise ZeroDivisionError
    assert mx.array_equal(it(X), plain)


class Spy(Dropout):
    """Notes the key of each mask."""

    def __call__(self, x: mx.array, place: int) -> mx.array:
        DRAWN.append(tuple((self.key + mx.array([0, place + 1], dtype=mx.uint32)).tolist()))
        return x

    def of_adapters(self, part: int, use: int = 0) -> Dropout:
        drawn = super().of_adapters(part, use)
        return Spy(drawn.rate, drawn.key)


DRAWN: list[tuple[int, ...]] = []


@pytest.mark.parametrize("tied", [True, False])
def test_no_two_modules_or_passes_share_a_mask(random_gpt: Maker, tied: bool) -> None:
    model = with_changes(random_gpt(n_layer=3, tie_embeddings=tied))
    DRAWN.clear()
    spy = Spy(0.1, KEY, 0.1)
    features = model.features(mx.array([[1, 2, 3]]), PLAIN, spy)
    model.head(features, spy, 0)
    model.head(features, spy, 1)
    own, low_rank, heads = 2 * 3 + 1, 7 * 3 + 1, 2
    assert len(DRAWN) == own + low_rank + heads
    assert len(set(DRAWN)) == len(DRAWN)


def with_changes(model: GPT, dora: bool = False) -> GPT:
    """Put a random change on every matrix of a network, and freeze the rest."""
    model.freeze()
    matrices = (nn.Linear, nn.Embedding)
    for path, part in [(p, m) for p, m in model.named_modules() if isinstance(m, matrices)]:
        rows, columns = part.weight.shape
        first, last = (rows, columns) if isinstance(part, nn.Embedding) else (columns, rows)
        a, b = noise(f"{path}.a", first, RANK) / first**0.5, noise(f"{path}.b", RANK, last) / 3
        change = adapted(part, a, b, SCALE, row_lengths(part) if dora else None)
        owner: Any = model
        *above, name = path.split(".")
        for step in above:
            owner = owner[int(step)] if step.isdigit() else owner[step]
        owner[name] = change
    return model


@METHODS
def test_a_network_trains_with_it_and_is_evaluated_without(random_gpt: Maker, dora: bool) -> None:
    model = with_changes(random_gpt(), dora)
    ids, dropout = mx.array([[1, 2, 3, 4], [4, 3, 2, 1]]), Dropout(0.0, KEY, 0.5)
    plain = model(ids)
    assert not mx.allclose(model(ids, PLAIN, dropout), plain, atol=1e-2)
    assert mx.array_equal(model(ids, PLAIN, dropout), model(ids, PLAIN, dropout))
    assert mx.array_equal(model(ids), plain)
    assert mx.array_equal(model(ids, PLAIN, Dropout(0.0, KEY, 0.0)), plain)


@METHODS
@pytest.mark.parametrize("recompute", [False, True])
def test_the_gradient_is_that_of_the_loss_with_these_masks(
    random_gpt: Maker, dora: bool, recompute: bool
) -> None:
    """Against differences along a random direction; DoRA's lengths are held, so only `m` moves."""
    model = with_changes(random_gpt(), dora)
    ids, dropout = mx.array([[1, 2, 3, 4, 5]]), Dropout(0.2, KEY, 0.3)

    def loss(trained: dict) -> mx.array:
        model.update(trained)
        features = model.features(ids, PLAIN, dropout, recompute=recompute)
        return model.head(features, dropout).square().mean()

    start = model.trainable_parameters()
    gradients = dict(tree_flatten(mx.grad(loss)(start)))
    moved = {n: g for n, g in gradients.items() if n.endswith(".m") == dora}
    direction = {n: noise(f"to/{n}", *g.shape) for n, g in moved.items()}
    slope = sum(float((g * direction[n]).sum().item()) for n, g in moved.items())

    def along(step: float) -> float:
        names = iter(dict(tree_flatten(start)))
        return float(
            loss(tree_map(lambda p: p + step * direction.get(next(names), 0), start)).item()
        )

    assert slope == pytest.approx((along(2e-4) - along(-2e-4)) / 4e-4, rel=2e-2)
    assert abs(slope) > 1e-2


def test_the_plain_and_the_recomputing_pass_draw_the_same(random_gpt: Maker) -> None:
    model = with_changes(random_gpt())
    ids = mx.array([[1, 2, 3, 4, 5, 6]])
    attend = SegmentAttend(mx.array([[1, 1, 2, 2, 2, 3]]))
    dropout = Dropout(0.2, KEY, 0.3)
    one, other = (model.features(ids, attend, dropout, recompute=r) for r in (False, True))
    assert mx.array_equal(one, other)
    assert not any(m._drop for m in model.modules() if isinstance(m, ADAPTED))
