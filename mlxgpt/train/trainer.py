"""The training loop: batches -> weights, with validation, metrics, saves and a clean stop."""

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import TrainingState, load_state, publish_weights, save_state
from mlxgpt.data import Batch, Prefetcher
from mlxgpt.errors import CheckpointError, DataError, DivergedError
from mlxgpt.machine.memory import mlx_peak_memory, peak_rss
from mlxgpt.train.environment import Environment, blas_for_workers
from mlxgpt.train.evaluate import Evaluation
from mlxgpt.train.job import Job
from mlxgpt.train.observer import Observer, Silent, StepReport
from mlxgpt.train.run_dir import RunDirectory
from mlxgpt.train.schedule import lr_factor
from mlxgpt.train.step import TrainStep


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    """Steps done in all."""
    evaluation: Evaluation | None
    """The last validation."""
    finished: bool
    """False if it was asked to stop before its last step."""


@dataclass(frozen=True)
class _Pending:
    """A step that is on its way: its numbers are read while the next one is computed."""

    step: int
    loss: mx.array
    norm: mx.array
    num_tokens: int
    num_targets: int


class Trainer:
    """Runs one training in a run directory.

    `environment` says whether to compile, and the measured speed that the MFU refers to.
    """

    def __init__(
        self,
        job: Job,
        run: RunDirectory,
        *,
        environment: Environment,
        observer: Observer | None = None,
    ) -> None:
        self._job, self._run = job, run
        self._config = job.config
        self._observer: Observer = observer or Silent()
        self._step = TrainStep(job.model, job.objective, job.config, compiled=environment.compiled)
        self._mfu_per_token = job.flops_per_token / (environment.gemm_gflops * 1e9)
        self._done, self._saved, self._validated = 0, -1, -1
        self._evaluation: Evaluation | None = None
        self._best = math.inf
        self._clock = time.perf_counter()

    def resume(self) -> int:
        """Take over the newest saved state of the run directory and return its step.

        A run that was killed before it saved anything starts at step 0. Raises `CheckpointError` if
        the state is damaged, or if the data are not those it was saved with.
        """
        if not self._run.started:
            return 0
        state = load_state(self._run.path)
        self._step.restore(state.weights, state.optimizer)
        self._same_settings(state)
        if state.trainer.get("data") != self._job.fingerprint:
            raise CheckpointError(
                f"{self._run.path}: {self._job.source} is not what this run was trained on; "
                f"put it back, or start a new run with {self._job.anew(self._run.path)}"
            )
        self._best = state.trainer["best_val_loss"] or math.inf
        self._done = self._saved = state.step
        self._run.forget_after(state.step)
        # A crash may have come between the state and its showing as the model.
        self._publish(state)
        return state.step

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the last step, or until `should_stop()`; save either way.

        Raises `DivergedError` when a loss or a gradient is not finite; what was saved before stays.
        """
        assert self._config.workers is not None
        with blas_for_workers(self._config.workers):
            try:
                self._loop(should_stop)
            finally:
                self._step.close()
        return Outcome(self._done, self._evaluation, self._done == self._config.num_steps)

    def _loop(self, should_stop: Callable[[], bool]) -> None:
        # There the step is done by the time we look, and would be given the next one's time.
        on_cpu = mx.default_device().type == mx.DeviceType.cpu
        # On a CPU device the cores have enough to do.
        threads = 1 if on_cpu else max(1, min(4, (os.cpu_count() or 1) // 2))
        steps = range(self._done + 1, self._config.num_steps + 1)
        with Prefetcher(self._batches, steps, workers=threads) as batches:
            if self._done == 0:  # from the first moment on, the run can be resumed and used
                self._job.describe_into(self._run.path)
                self.save()
            self._steps(batches, should_stop, on_cpu=on_cpu)
        if self._saved < self._done:
            self.save()

    def _steps(
        self, batches: Iterator[list[Batch]], should_stop: Callable[[], bool], *, on_cpu: bool
    ) -> None:
        """Do a step with each of the `batches`, and what is due after it."""
        config = self._config
        assert config.eval_every is not None
        assert config.save_every is not None
        pending: _Pending | None = None
        self._clock = time.perf_counter()
        while self._done < config.num_steps and not should_stop():
            step = self._done + 1
            micro = next(batches)
            loss, norm = self._step.run(step, micro)
            self._settle(pending)
            filled = sum(batch.filled for batch in micro)
            targets = sum(int(np.count_nonzero(batch.loss_weights)) for batch in micro)
            pending, self._done = _Pending(step, loss, norm, filled, targets), step
            last = step == config.num_steps
            evaluate = last or step % config.eval_every == 0
            save = last or step % config.save_every == 0
            if on_cpu or evaluate or save:
                self._settle(pending)
                pending = None
            if evaluate or save:
                if evaluate:
                    self.validate()
                if save:
                    self.save()
                self._clock = time.perf_counter()
        self._settle(pending)

    def validate(self) -> Evaluation | None:
        """Measure the validation loss now, where there is something to measure it on; log it."""
        record: dict[str, Any] = {"step": self._done}
        if self._job.validation:
            nll, num_tokens = self._step.evaluate(self._job.validation)
            if not math.isfinite(nll):
                self._diverged(self._done, "the validation loss", nll)
            evaluation = Evaluation.of(nll, num_tokens, self._job.validation_bytes)
            self._evaluation, self._best = evaluation, min(self._best, evaluation.loss)
            self._validated = self._done
            record |= {"val_loss": evaluation.loss, "bits_per_byte": evaluation.bits_per_byte}
        record |= {"mlx_peak_bytes": mlx_peak_memory(), "rss_peak_bytes": peak_rss()}
        self._run.log(record)
        if self._evaluation is not None:
            self._observer.validated(self._done, self._evaluation)
        return self._evaluation

    def save(self) -> None:
        """Save everything that a resumed run needs, and show the weights as the model.

        Raises `DivergedError` instead, and keeps the last good state, if these weights cannot
        compute a loss any more: a step's own loss was finite before its update.
        """
        if self._done not in (0, self._validated):
            probe = self._job.validation[0] if self._job.validation else self._batches(1)[0]
            nll, _ = self._step.evaluate([probe])
            if not math.isfinite(nll):
                self._diverged(self._done, "the loss after the update", nll)
        facts: dict[str, Any] = {
            "data": self._job.fingerprint,
            "settings": self._job.settings,
            "best_val_loss": self._best if math.isfinite(self._best) else None,
        }
        state = TrainingState(
            self._done,
            dict(tree_flatten(self._step.parameters)),
            self._step.optimizer_state,
            facts,
        )
        self._publish(state)
        self._saved = self._done
        self._observer.saved(self._done)

    def _publish(self, state: TrainingState) -> None:
        publish_weights(self._run.path / self._job.shows, save_state(self._run.path, state))

    def _same_settings(self, state: TrainingState) -> None:
        """Raise `CheckpointError` if `run.yaml` was edited: it would be neither run."""
        now = self._job.settings
        for name, saved in state.trainer.get("settings", {}).items():
            if now.get(name) != saved:
                raise CheckpointError(
                    f"{self._run.path}: '{name}' was {saved} when step {state.step} was saved and "
                    f"is {now.get(name)} now; put it back in run.yaml, or start a new run with "
                    f"{self._job.anew(self._run.path)}"
                )

    def _settle(self, pending: _Pending | None) -> None:
        """Wait for a step's numbers, check and report them."""
        if pending is None:
            return
        loss, norm = _number(pending.loss), _number(pending.norm)
        now = time.perf_counter()
        speed, self._clock = pending.num_tokens / (now - self._clock), now
        for name, value in (("the loss", loss), ("the gradient norm", norm)):
            if not math.isfinite(value):
                self._diverged(pending.step, name, value)
        assert self._config.optimizer.max_lr is not None
        factor = lr_factor(self._config.optimizer, pending.step, self._config.num_steps)
        report = StepReport(
            step=pending.step,
            loss=loss,
            lr=self._config.optimizer.max_lr * factor,
            grad_norm=norm,
            tok_per_sec=speed,
            mfu=speed * self._mfu_per_token,
            epoch=self._job.epoch(pending.step),
            num_tokens=pending.num_tokens,
            num_targets=pending.num_targets,
        )
        self._run.log(asdict(report))
        self._observer.stepped(report)

    def _diverged(self, step: int, what: str, value: float) -> NoReturn:
        raise DivergedError(
            f"step {step}: {what} is {value}; the last good weights are those of step "
            f"{self._saved} in {self._run.path}. Try a lower --max-lr or a longer --warmup"
            + (", or dtype float32" if self._config.dtype != "float32" else "")
        )

    def _batches(self, step: int) -> list[Batch]:
        """Return the micro-batches of step `step`, counted from 1."""
        try:
            return self._job.batches(step)
        except DataError as e:
            raise DataError(f"step {step}: {e}") from e


def _number(array: mx.array) -> float:
    value = array.item()
    assert isinstance(value, float)
    return value
