"""The checks pass here, and each fails when its operation computes something else."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest

from mlxgpt.machine.operation_checks import check_operations


def test_this_device_computes_right() -> None:
    checks = check_operations()
    assert [c.state for c in checks] == ["ok"] * len(checks)
    names = {c.name for c in checks}
    assert len(names) == len(checks) == 18
    assert {"rotary positions, bfloat16", "4-bit product, float16"} <= names


def changed(function: Callable[..., mx.array], **changes: Any) -> Callable[..., mx.array]:
    return lambda *given, **named: function(*given, **{**named, **changes})


WRONG: dict[str, tuple[Any, str, Callable[[Callable[..., mx.array]], Callable[..., mx.array]]]] = {
    "attention": (mx.fast, "scaled_dot_product_attention", lambda f: changed(f, scale=0.12)),
    "causal attention": (mx.fast, "scaled_dot_product_attention", lambda f: changed(f, mask=None)),
    "rotary positions": (mx.fast, "rope", lambda f: changed(f, offset=299)),
    "RMSNorm": (mx.fast, "rms_norm", lambda f: lambda x, w, eps: f(x, w * 1.1, eps)),
    "4-bit product": (mx, "quantized_matmul", lambda f: lambda *a, **n: f(*a, **n) * 1.15),
    "8-bit product": (mx, "quantized_matmul", lambda f: lambda *a, **n: f(*a, **n) * 1.15),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_operation_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, function, spoil = WRONG[name]
    monkeypatch.setattr(module, function, spoil(getattr(module, function)))
    states = {c.name: c.state for c in check_operations()}
    wrong = [states[f"{name}, {dtype}"] for dtype in ("float32", "float16", "bfloat16")]
    assert wrong == ["failed"] * 3


def test_what_is_raised_becomes_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any, **__: Any) -> mx.array:
        raise RuntimeError("Unable to load kernel")

    monkeypatch.setattr(mx.fast, "rms_norm", raises)
    failed = [c for c in check_operations() if c.state == "failed"]
    assert [c.reason for c in failed] == ["RuntimeError: Unable to load kernel"] * 3
