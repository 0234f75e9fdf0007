"""A training process that is asked to stop, or killed: nothing is lost but the last few steps."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import assert_same_run, losses, write_corpus

from mlxgpt.checkpoint import load_model, load_state
from mlxgpt.train import RunDirectory, StopRequest

# `mlxgpt` without the measurement of the machine; with a first argument other than 0, it kills
# itself so many seconds after the training has begun.
SCRIPT = """
import os, sys, threading
import mlxgpt.train.environment as environment
from mlxgpt.cli.app import main
from mlxgpt.train.trainer import Trainer
delay = float(sys.argv.pop(1))
environment.measure_gemm = lambda _: 50.0
original = Trainer.run
def run(self, *arguments):
    if delay:
        timer = threading.Timer(delay, os.kill, (os.getpid(), 9))
        timer.daemon = True
        timer.start()
    return original(self, *arguments)
Trainer.run = run
main()
"""
TINY = shlex.split(
    "--batch 4 --ctx 16 --n-layer 1 --n-head 2 --n-embd 16 --tokenizer char --dropout 0.1 "
    "--grad-accum 2 --optimizer muon --set workers=2"
)

Launch = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Return a function that starts `mlxgpt train` in a folder of its own."""
    write_corpus(tmp_path / "words.txt")
    variables = {**os.environ, "MLX_DISABLE_COMPILE": "1", "MLXGPT_CACHE": str(tmp_path / "cache")}

    def start(*arguments: object, kill_after: float = 0.0) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(kill_after), "train", *map(str, arguments)],
            cwd=tmp_path,
            env=variables,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    return start


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_weights(
    tmp_path: Path, launch: Launch
) -> None:
    new = (
        "--corpus",
        "words.txt",
        *TINY,
        "--steps",
        "30",
        "--save-every",
        "2",
        "--eval-every",
        "5",
    )
    assert ended(launch(*new, "--out", "whole")) == 0
    run, draw, kills = tmp_path / "killed", random.Random(5), 0
    moments = [0.0001, *(draw.uniform(0.0, 0.35) for _ in range(5))]
    for i, moment in enumerate(moments):
        arguments = (*new, "--out", "killed") if i == 0 else ("--resume", "killed")
        code = ended(launch(*arguments, kill_after=moment))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        assert (run / "run.yaml").exists()
        if RunDirectory(run).started:
            assert load_state(run).step % 2 == 0
            if (run / "model.safetensors").exists():
                load_model(run)
    assert ended(launch("--resume", "killed")) == 0
    assert kills >= 3
    assert_same_run(tmp_path / "whole", run)
    assert not [p.name for p in run.rglob("tmp-*")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_first_signal_saves_and_says_how_to_go_on(
    tmp_path: Path, launch: Launch, number: signal.Signals
) -> None:
    new = ("--corpus", "words.txt", *TINY, "--steps", "100000", "--save-every", "100000")
    process = launch(*new, "--out", "run")
    wait_for(lambda: len(losses(tmp_path / "run")) > 3)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    done = losses(tmp_path / "run")[-1][0]
    assert f"stopped after step {done}, all saved; go on with:\n  mlxgpt train --resume run" in err
    assert load_state(tmp_path / "run").step == done
    load_model(tmp_path / "run")


def ended(process: "subprocess.Popen[str]") -> int:
    process.communicate(timeout=60)
    return process.returncode


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stop_request_hears_one_signal_and_gives_the_handlers_back() -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    with StopRequest() as stop:
        assert not stop.requested
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):  # a second one is not held back
            signal.raise_signal(signal.SIGINT)
    assert {n: signal.getsignal(n) for n in before} == before
    with StopRequest() as stop:
        pass
    assert {n: signal.getsignal(n) for n in before} == before
