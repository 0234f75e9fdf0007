import math
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.train import OptimizerConfig
from mlxgpt.train.config import LrSchedule
from mlxgpt.train.schedule import lr_factor

SHAPES = get_args(LrSchedule)


def rates(shape: str, steps: int, warmup: int, low: float = 0.0) -> list[float]:
    low = low if shape != "constant" else 0.0  # it has no other end than its peak
    config = OptimizerConfig(lr_schedule=shape, warmup_steps=warmup, min_lr_ratio=low)  # type: ignore[arg-type]
    return [lr_factor(config, step, steps) for step in range(1, steps + 1)]


def test_the_shapes_by_hand() -> None:
    assert rates("constant", 4, 0) == [1.0, 1.0, 1.0, 1.0]
    assert rates("linear", 4, 0) == [1.0, 0.75, 0.5, 0.25]
    assert rates("cosine", 4, 0) == pytest.approx([1.0, (2 + 2**0.5) / 4, 0.5, (2 - 2**0.5) / 4])
    assert rates("wsd", 10, 0) == pytest.approx([1.0] * 9 + [0.5])
    assert rates("linear", 6, 2, low=0.2) == pytest.approx([0.5, 1.0, 1.0, 0.8, 0.6, 0.4])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_warm_up_rises_in_equal_parts_to_the_peak(shape: str) -> None:
    assert rates(shape, 20, 5)[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_warm_up_may_last_the_whole_run(shape: str) -> None:
    assert rates(shape, 4, 4, low=0.3) == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_single_step_has_a_rate(shape: str) -> None:
    assert rates(shape, 1, 1) == [1.0]
    assert rates(shape, 1, 0, low=0.25) == [1.0]


plans = st.integers(1, 400).flatmap(
    lambda steps: st.tuples(
        st.sampled_from(SHAPES), st.just(steps), st.integers(0, steps), st.floats(0, 1)
    )
)


@given(plans)
def test_a_rate_is_a_share_rises_once_and_then_only_falls(
    plan: tuple[str, int, int, float],
) -> None:
    shape, steps, warmup, low = plan
    factors = rates(shape, steps, warmup, low)
    assert all(0.0 <= f <= 1.0 for f in factors)
    after = factors[warmup:]
    assert all(f >= low - 1e-12 for f in after)
    assert all(a >= b for a, b in pairwise(after))
    assert all(f > 0 for f in factors)  # no step is without effect
    if shape != "constant" and steps - warmup >= 100:
        assert factors[-1] <= low + 0.06


@given(plans)
def test_there_is_no_jump(plan: tuple[str, int, int, float]) -> None:
    shape, steps, warmup, low = plan
    factors = rates(shape, steps, warmup, low)
    left = max(1, steps - warmup)
    steepest = {"constant": 0.0, "cosine": math.pi / 2, "linear": 1.0, "wsd": 5.0}[shape] / left
    for a, b in pairwise(factors[warmup:]):
        assert a - b <= steepest + 1e-12
