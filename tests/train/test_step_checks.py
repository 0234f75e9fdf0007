import mlx.core as mx
import pytest

from mlxgpt.machine.compiler import Compiler
from mlxgpt.train import step_checks
from mlxgpt.train.step_checks import check_training


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes seconds; the test that wants it says so."""
    monkeypatch.setattr(step_checks, "compile_available", lambda: Compiler(False, "no g++"))


def test_bfloat16_steps_are_near_and_without_a_compiler_one_check_is_skipped() -> None:
    half, compiled = check_training()
    assert (half.name, half.state) == ("training, bfloat16", "ok")
    assert 0 < (half.difference or 0) < 0.05
    assert (compiled.state, compiled.reason) == ("skipped", "no g++")


@pytest.mark.slow
def test_the_compiled_loss_is_the_eager_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    _, compiled = check_training()
    assert compiled.state == "ok"


def test_a_compiled_function_that_errs_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_(function, **_):  # pyright: ignore[reportMissingParameterType]
        return lambda *arguments: function(*arguments) * 1.01

    monkeypatch.setattr(step_checks, "compile_available", lambda: Compiler(True, "it works"))
    monkeypatch.setattr(mx, "compile", compile_)
    monkeypatch.setattr(step_checks.TrainStep, "run", None)  # only the loss, on a CPU
    if mx.default_device().type == mx.DeviceType.cpu:
        assert check_training()[1].state == "failed"


def test_steps_that_are_wrong_in_half_precision_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    right = step_checks._trained

    def wrong(dtype: str, *, compiled: bool = False):  # pyright: ignore[reportMissingReturnType]
        return right("float32") * (1.1 if dtype == "bfloat16" else 1.0)

    monkeypatch.setattr(step_checks, "_trained", wrong)
    assert check_training()[0].state == "failed"
