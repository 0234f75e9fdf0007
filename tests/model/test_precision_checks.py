import mlx.core as mx
import pytest

from mlxgpt.model import layers, precision_checks
from mlxgpt.model.precision_checks import FORWARD, check_precisions


@pytest.fixture(autouse=True)
def computed_anew() -> None:
    precision_checks._logits_and_gradients.cache_clear()


def test_half_precision_is_as_near_as_it_should_be() -> None:
    checks = check_precisions()
    assert [c.state for c in checks] == ["ok"] * 4
    differences = {c.name: c.difference or 0.0 for c in checks}
    assert 0 < 4 * differences["logits, float16"] < differences["logits, bfloat16"]
    assert all(c.allowed == FORWARD[c.name.split()[1]] for c in checks if "logits" in c.name)


def test_a_network_that_is_wrong_in_half_precision_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = layers.swiglu

    def wrong(gate: mx.array, up: mx.array) -> mx.array:
        out = right(gate, up)
        return out if gate.dtype == mx.float32 else out * 1.3

    monkeypatch.setattr(layers, "swiglu", wrong)
    assert [c.state for c in check_precisions()] == ["failed"] * 4
