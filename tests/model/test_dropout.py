from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt import seeding
from mlxgpt.model import GPT, Dropout

N = 200_000


def mask(rate: float, place: int = 0, key: mx.array | None = None) -> np.ndarray:
    key = seeding.key(0, "dropout") if key is None else key
    return np.array(Dropout(rate, key)(mx.ones(N), place))


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.1, 0.5, 0.9])
def test_the_rate_is_the_rate_and_the_mean_stays(rate: float) -> None:
    out = mask(rate)
    dropped = float((out == 0).mean())
    sigma = (rate * (1 - rate) / N) ** 0.5
    assert abs(dropped - rate) <= 5 * sigma  # a rate off by 0.006 would show at every rate here
    assert set(np.unique(out).tolist()) <= {0.0, np.float32(1 / (1 - rate))}
    assert abs(float(out.mean()) - 1) <= 5 * sigma / (1 - rate) + 1e-6


def test_places_and_keys_draw_apart_and_the_same_draw_the_same() -> None:
    first = mask(0.3)
    others = [mask(0.3, place) for place in (1, 2, 3, 100)]
    others += [mask(0.3, 0, seeding.key(0, "dropout", step)) for step in range(3)]
    others += [mask(0.3, 0, seeding.key(1, "dropout"))]
    assert np.array_equal(first, mask(0.3))
    masks = np.stack([first, *others]) == 0
    correlation = np.corrcoef(masks) - np.eye(len(masks))
    assert abs(correlation).max() < 5 / N**0.5
    for lag in (1, 2, 7):  # neighbours within one mask, too
        assert abs(np.corrcoef(masks[0, lag:], masks[0, :-lag])[0, 1]) < 5 / N**0.5


def test_gradients_flow_through_what_was_kept() -> None:
    dropout = Dropout(0.25, seeding.key(0, "dropout"))
    x = mx.random.normal((1000,), key=seeding.key(0, "x"))
    gradient = mx.grad(lambda x: dropout(x, 3).sum())(x)
    assert mx.array_equal(gradient, dropout(mx.ones(1000), 3))


def test_half_precision_stays_half() -> None:
    out = Dropout(0.5, seeding.key(0, "dropout"))(mx.ones(10, dtype=mx.bfloat16), 0)
    assert out.dtype == mx.bfloat16


class Recorder(Dropout):
    """Drops nothing and notes where it was asked to."""

    def __call__(self, x: mx.array, place: int) -> mx.array:
        PLACES.append(place)
        return x


PLACES: list[int] = []


def test_the_network_drops_only_when_told_and_nowhere_twice(
    random_gpt: Callable[..., GPT],
) -> None:
    model = random_gpt(n_layer=3)
    ids = mx.array([[1, 2, 3, 4]])
    plain = model(ids)
    key = seeding.key(0, "dropout")
    assert mx.array_equal(model(ids), plain)
    PLACES.clear()
    assert mx.array_equal(model(ids, dropout=Recorder(0.5, key)), plain)
    assert len(PLACES) == len(set(PLACES)) == 1 + 2 * 3
    dropped = model(ids, dropout=Dropout(0.5, key))
    assert not mx.allclose(dropped, plain, atol=1e-2)
    assert mx.array_equal(model(ids, dropout=Dropout(0.5, key)), dropped)
    assert not mx.allclose(model(ids, dropout=Dropout(0.5, key + 7)), dropped, atol=1e-2)
    assert mx.allclose(model(ids, dropout=Dropout(0.0, key)), plain, atol=1e-6)
