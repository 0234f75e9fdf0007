import json

import numpy as np
import pytest

from mlxgpt.machine.device_check import apart, check, skipped


def raises() -> float:
    raise RuntimeError("[metal] no\n  such function")


def test_a_difference_is_judged_and_nan_is_never_well() -> None:
    assert check("a", "b with c", 0.1, lambda: 0.1).state == "ok"
    assert check("a", "b with c", 0.1, lambda: 0.11).state == "failed"
    assert check("a", "b with c", 0.1, lambda: float("nan")).state == "failed"
    failed = check("a", "b with c", 0.1, raises)
    assert (failed.state, failed.difference) == ("failed", None)
    assert failed.reason == "RuntimeError: [metal] no such function"
    assert skipped("a", "b with c", "no GPU").state == "skipped"


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_stays_json(number: float) -> None:
    report = check("a", "b with c", 0.1, lambda: number).to_dict()
    assert json.loads(json.dumps(report, allow_nan=False))["difference"] is None
    assert check("a", "b with c", 0.1, lambda: 0.5).to_dict()["difference"] == 0.5


def test_large_numbers_are_compared_by_their_size() -> None:
    assert apart(np.array([0.0, 101.0]), np.array([0.2, 100.0])) == pytest.approx(0.2)
    assert apart(np.array([0.0, 110.0]), np.array([0.01, 100.0])) == pytest.approx(0.1)
    assert np.isnan(apart(np.array([np.nan, 0.0]), np.zeros(2)))
