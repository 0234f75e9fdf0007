import mlx.core as mx
import numpy as np
import numpy_llama
import pytest

from mlxgpt import seeding
from mlxgpt.model.rotary import Rotary


def expected(x: mx.array, positions: np.ndarray, theta: float) -> np.ndarray:
    """Turn each token of x (B, H, T, D) by hand; positions (B, T)."""
    values = np.array(x, dtype=np.float64)
    out = np.empty_like(values)
    for b, h, t in np.ndindex(values.shape[:3]):
        out[b, h, t] = numpy_llama.rotate(values[b, h, t], int(positions[b, t]), theta)
    return out


@pytest.mark.parametrize("d", [2, 8, 56])
@pytest.mark.parametrize("theta", [10000.0, 500000.0, 7.0])
def test_each_kind_of_offset(d: int, theta: float) -> None:
    rotary = Rotary(d, theta)
    x = mx.random.normal((3, 2, 5, d), key=seeding.key(0, "rotary"))
    steps = np.arange(5)
    rows = np.array([0, 7, 400])
    each = np.array([[0, 1, 2, 0, 1], [9, 3, 300, 2, 2], [5, 6, 7, 8, 9]])
    for offset, positions in (
        (0, np.tile(steps, (3, 1))),
        (311, np.tile(steps + 311, (3, 1))),
        (mx.array(311), np.tile(steps + 311, (3, 1))),
        (mx.array(rows), rows[:, None] + steps),
        (mx.array(each), each),
    ):
        turned = np.array(rotary(x, offset))
        np.testing.assert_allclose(turned, expected(x, positions, theta), atol=2e-4)


def test_a_batch_as_wide_as_its_heads_or_its_length_is_not_mistaken() -> None:
    rotary = Rotary(4, 100.0)
    x = mx.random.normal((4, 4, 4, 4), key=seeding.key(1, "rotary"))
    rows = np.array([3, 1, 4, 1])
    by_row = np.array(rotary(x, mx.array(rows)))
    np.testing.assert_allclose(by_row, expected(x, rows[:, None] + np.arange(4), 100.0), atol=1e-5)


def test_scores_depend_on_the_distance_alone() -> None:
    rotary = Rotary(16, 10000.0)
    q, k = (mx.random.normal((1, 1, 1, 16), key=seeding.key(2, n)) for n in "qk")

    def score(at: int, distance: int) -> float:
        return (rotary(q, at + distance) * rotary(k, at)).sum().item()  # type: ignore[return-value]

    assert score(0, 3) == pytest.approx(score(200, 3), abs=1e-4)
    assert abs(score(0, 3) - score(0, 4)) > 1e-3
