"""Randomness as a function of (seed, purpose, index)."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.seeding import derive, generator, key

arguments = st.tuples(
    st.integers(-(2**70), 2**70), st.text("abc-/", max_size=5), st.lists(st.integers(), max_size=3)
)


def test_the_numbers_are_these_for_ever() -> None:
    """A change would give every old run other batches: it needs a reason, and a note."""
    assert derive(0, "batch-order") == 0xA46B1E6D1BD3B59FDF001DC9102160F
    assert generator(7, "window-order", 2).integers(1000, size=4).tolist() == [251, 657, 679, 778]
    assert key(7, "dropout", 3, 1).tolist() == [467026179, 4290459584]


@given(arguments)
def test_asking_twice_gives_the_same(arguments: tuple[int, str, list[int]]) -> None:
    seed, purpose, index = arguments
    assert derive(seed, purpose, *index) == derive(seed, purpose, *index) < 2**128
    first, again = (generator(seed, purpose, *index).random(3) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert key(seed, purpose, *index).tolist() == key(seed, purpose, *index).tolist()


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_no_two_uses_share_a_number(seed: int, first: int, second: int) -> None:
    uses = [
        (seed, "a", first, second),
        (seed, "b", first, second),
        (seed + 1, "a", first, second),
        (seed, "a", first + 1, second),
        (seed, "a", first, second + 1),
        (seed, "a", first),
        (seed, "a"),
        (seed * 100 + first, "a", second),
    ]
    assert len({derive(*use) for use in uses}) == len(set(uses))


def test_other_random_numbers_do_not_matter() -> None:
    before = generator(1, "x").random(4), key(1, "x").tolist()
    np.random.default_rng(0).random(10)
    mx.random.seed(99)
    mx.eval(mx.random.uniform(shape=(3,)))
    after = generator(1, "x").random(4), key(1, "x").tolist()
    assert before[0].tobytes() == after[0].tobytes()
    assert before[1] == after[1]


@pytest.mark.parametrize("vary", ["seed", "purpose", "index"])
def test_neighbours_are_independent(vary: str) -> None:
    """Correlations of 40 neighbouring streams of 5,000 numbers, each about N(0, 1 / 5000)."""
    streams = []
    for i in range(40):
        use = {"seed": (i, "x", 0), "purpose": (0, f"x{i}", 0), "index": (0, "x", i)}[vary]
        streams.append(generator(*use).random(5000))
        assert abs(streams[-1].mean() - 0.5) < 5 / (12 * 5000) ** 0.5
    correlations = np.corrcoef(streams)[np.triu_indices(40, 1)]
    assert np.abs(correlations).max() < 5 / 5000**0.5
    normal = [np.array(mx.random.normal((5000,), key=key(0, "x", i))) for i in range(10)]
    assert np.abs(np.corrcoef(normal)[np.triu_indices(10, 1)]).max() < 5 / 5000**0.5
