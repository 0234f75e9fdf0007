import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import TrainingState, load_state, publish_weights, save_state
from mlxgpt.checkpoint.safetensors import read_tensors
from mlxgpt.errors import CheckpointError


def state(step: int, size: int = 50) -> TrainingState:
    """A state in which every number says its step."""
    return TrainingState(
        step=step,
        weights={"w": mx.full((size,), float(step)), "v": mx.full((3, 2), float(step))},
        optimizer={"m": mx.full((size,), float(step)), "step": mx.array(step, dtype=mx.uint64)},
        trainer={"seed": 7, "best_val_loss": step / 3, "step": "not that of the file"},
    )


def save(run: Path, step: int, size: int = 50) -> None:
    """Save as a training does: the state, then the weights that others see."""
    publish_weights(run / "model.safetensors", save_state(run, state(step, size)))


def shown_step(run: Path) -> int:
    """Return which step's weights the run shows as its model, all of one step."""
    steps = {value for w in read_tensors(run / "model.safetensors").values() for value in _all(w)}
    (step,) = steps
    return int(step)


def _all(array: mx.array) -> list[float]:
    return array.flatten().tolist()  # type: ignore[return-value]


def check(run: Path, allowed: set[int]) -> int:
    """The run must be loadable at one of the `allowed` steps, whole, and its model too."""
    loaded = load_state(run)
    assert loaded.step in allowed
    for array in (*loaded.weights.values(), *loaded.optimizer.values()):
        assert set(_all(array)) == {loaded.step}
    assert shown_step(run) in allowed
    assert shown_step(run) <= loaded.step
    return loaded.step


def test_there_and_back_bit_for_bit(tmp_path: Path) -> None:
    key = mx.random.key(3)
    weights = {
        "a": mx.random.normal((4, 5), key=key),
        "half": mx.array([70000.0, -0.0, 1e-38]).astype(mx.bfloat16),
    }
    optimizer = {"a.m": mx.random.normal((4, 5), key=key + 1), "step": mx.array(9, mx.uint64)}
    optimizer["rate"] = mx.array(1e-45)
    trainer: dict[str, Any] = {"data": "x", "seed": 5, "best": None, "nested": {"a": [1, 2.5]}}
    file = save_state(tmp_path, TrainingState(12, weights, optimizer, trainer))
    loaded = load_state(tmp_path)
    assert (loaded.step, loaded.trainer) == (12, trainer)
    for mine, theirs in ((weights, loaded.weights), (optimizer, loaded.optimizer)):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            assert array.dtype == theirs[name].dtype
            assert mx.array_equal(
                array.reshape(-1).view(mx.uint8), theirs[name].reshape(-1).view(mx.uint8)
            ), name
    assert read_tensors(file).keys() == weights.keys()


def test_the_newest_stays_alone_and_is_the_model_that_others_see(tmp_path: Path) -> None:
    for step in (0, 9, 10, 100):
        save(tmp_path, step)
        assert check(tmp_path, {step}) == step
        assert [f.name for f in (tmp_path / "state").iterdir()] == [f"step-{step:08}"]
        weights = tmp_path / "state" / f"step-{step:08}" / "weights.safetensors"
        assert os.path.samefile(weights, tmp_path / "model.safetensors")
    save(tmp_path, 100)  # a resumed run that is stopped before its next step
    check(tmp_path, {100})
    assert sorted(f.name for f in tmp_path.iterdir()) == ["model.safetensors", "state"]


def test_leftovers_are_passed_over_and_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 5)
    leftover = tmp_path / "state" / "tmp-step-00000009"
    leftover.mkdir()
    (leftover / "weights.safetensors").write_bytes(b"half")
    incomplete = tmp_path / "state" / "step-00000008"
    incomplete.mkdir()
    (tmp_path / "tmp-1-model.safetensors").write_bytes(b"half")
    check(tmp_path, {5})
    assert "step-00000008 is incomplete" in caplog.text
    save(tmp_path, 7)
    check(tmp_path, {7})
    assert [f.name for f in (tmp_path / "state").iterdir()] == ["step-00000007"]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["model.safetensors", "state"]


def test_an_incomplete_state_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 5)
    incomplete = tmp_path / "state" / "step-00000006"
    incomplete.mkdir()
    (incomplete / "weights.safetensors").write_bytes(b"half")
    save(tmp_path, 6)
    check(tmp_path, {6})


def test_what_cannot_be_resumed_is_said(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no saved training state"):
        load_state(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="--init-from"):
        load_state(tmp_path)
    save(tmp_path, 5)
    folder = tmp_path / "state" / "step-00000005"
    for name in ("weights.safetensors", "optimizer.safetensors", "trainer.json"):
        content = (folder / name).read_bytes()
        for damaged in (content[:-3], content[:20], b"", content + b"x"):
            (folder / name).write_bytes(damaged)
            with pytest.raises(CheckpointError, match=name):
                load_state(tmp_path)
        (folder / name).write_bytes(content)
    check(tmp_path, {5})
    folder.rename(folder.with_name("step-00000006"))
    with pytest.raises(CheckpointError, match="not that of step 6"):
        load_state(tmp_path)


def test_a_state_of_another_format_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 5)
    file = tmp_path / "state" / "step-00000005" / "trainer.json"
    text = file.read_text()
    file.write_text(text.replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(CheckpointError, match="format 2"):
        load_state(tmp_path)
    file.write_text(text.replace('"trainer": {', '"trainer": 5, "x": {'))
    with pytest.raises(CheckpointError, match=r"trainer\.json"):
        load_state(tmp_path)


# Crashes


class PowerCut(BaseException):
    """Nothing that follows happens: no handler, no clean-up."""


CALLS = ["rename", "replace", "fsync", "link", "mkdir", "unlink", "rmdir"]


@contextmanager
def failing(at: int, error: Callable[[], BaseException], *, lasting: bool) -> Iterator[list[str]]:
    """Let system call number `at` (from 0) of a save raise; from then on all, if `lasting`."""
    made: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                made.append(name)
                if len(made) - 1 == at or (lasting and len(made) > at):
                    if name == "save_safetensors" and len(made) - 1 == at:
                        real(*args, **kwargs)
                        os.truncate(args[0], os.path.getsize(args[0]) // 2)
                    raise error()
                return real(*args, **kwargs)

            return call

        for name in CALLS:
            patch.setattr(os, name, wrap(name, getattr(os, name)))
        patch.setattr(mx, "save_safetensors", wrap("save_safetensors", mx.save_safetensors))
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False], ids=["first save", "later save"])
def test_a_crash_at_any_moment_leaves_the_old_state_or_the_new(tmp_path: Path, first: bool) -> None:
    seen = set()
    for at in range(100):
        run = tmp_path / str(at)
        run.mkdir()
        if not first:
            save(run, 1)
        try:
            with failing(at, PowerCut, lasting=True) as made:
                save(run, 2)
        except PowerCut:
            seen.add(made[at])
        else:
            break
        if not first:
            check(run, {1, 2})
        elif (run / "state" / "step-00000002").exists():
            assert load_state(run).step == 2
        else:
            with pytest.raises(CheckpointError):
                load_state(run)
        if (run / "model.safetensors").exists():
            assert shown_step(run) in {1, 2}
        save(run, 3)  # life goes on, and nothing is left behind
        check(run, {3})
        assert sorted(f.name for f in run.iterdir()) == ["model.safetensors", "state"]
        assert [f.name for f in (run / "state").iterdir()] == ["step-00000003"]
    assert at > 12
    assert {"save_safetensors", "fsync", "rename", "replace", "link", "mkdir"} <= seen


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_state_and_is_told_in_one_line(tmp_path: Path) -> None:
    def full() -> OSError:
        return OSError(errno.ENOSPC, "No space left on device")

    refusals = 0
    for at in range(100):
        run = tmp_path / str(at)
        run.mkdir()
        save(run, 1)
        message = ""
        with failing(at, full, lasting=False) as made:
            try:
                save(run, 2)
            except CheckpointError as e:
                message = str(e)
        refusals += bool(message)
        assert "\n" not in message
        assert not message or "No space left" in message
        check(run, {1, 2} if message else {2})
        if at >= len(made):
            break
        save(run, 3)
        check(run, {3})
        assert sorted(f.name for f in run.iterdir()) == ["model.safetensors", "state"]
    assert at > 12
    assert refusals > 8


def test_mlx_itself_that_cannot_write_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 1)

    def full(*_: object, **__: object) -> None:
        raise RuntimeError("[write] Unable to write 3000096 bytes to file.")

    with monkeypatch.context() as m:
        m.setattr(mx, "save_safetensors", full)
        with pytest.raises(CheckpointError, match="what was saved before is untouched"):
            save(tmp_path, 2)
    check(tmp_path, {1})


CHILD = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import test_training_state as t
from mlxgpt.checkpoint import load_state
run = Path(sys.argv[1])
step = load_state(run).step
while True:
    step += 1
    t.save(run, step, 300_000)
    print(step, flush=True)
"""


@pytest.mark.slow
def test_killed_at_random_moments_a_save_loop_goes_on_from_the_last_save(tmp_path: Path) -> None:
    save(tmp_path, 0)
    moments = random.Random(11)
    last, inside = 0, 0
    for _ in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(Path(__file__).parent)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        assert child.stdout.readline()  # it is on its way
        time.sleep(moments.uniform(0, 0.1))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        inside += any((tmp_path / "state").glob("tmp-*"))
        finished = [int(line) for line in child.stdout.read().split()]
        child.stdout.close()
        last = finished[-1] if finished else last + 1
        last = check(tmp_path, {last, last + 1})
    assert last > 10
    assert inside, "no kill came in the middle of a save; the test showed nothing"
    shutil.rmtree(tmp_path / "state")
