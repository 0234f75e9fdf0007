"""The training loop: batches -> weights, with validation, metrics, saves and a clean stop."""

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import (
    TrainingState,
    load_state,
    publish_weights,
    save_description,
    save_state,
)
from mlxgpt.config import to_dict
from mlxgpt.data import Batch, Prefetcher, batch_bytes, evaluation_batches
from mlxgpt.errors import CheckpointError, DataError, DivergedError
from mlxgpt.machine.memory import mlx_peak_memory, peak_rss
from mlxgpt.model import train_flops_per_token
from mlxgpt.train.environment import Environment, blas_for_workers
from mlxgpt.train.evaluate import Evaluation
from mlxgpt.train.observer import Observer, Silent, StepReport
from mlxgpt.train.prepare import Prepared
from mlxgpt.train.run_dir import RunDirectory
from mlxgpt.train.schedule import lr_factor
from mlxgpt.train.step import TrainStep

# Settings that change no weight.
_ONLY_WHEN_TO_LOOK = ("eval_every", "save_every", "val_tokens")


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


class Trainer:
    """Runs one training in a run directory.

    `environment` says whether to compile, and the measured speed that the MFU refers to.
    """

    def __init__(
        self,
        prepared: Prepared,
        run: RunDirectory,
        *,
        environment: Environment,
        observer: Observer | None = None,
    ) -> None:
        self._prepared, self._run = prepared, run
        self._config = prepared.config
        self._observer: Observer = observer or Silent()
        self._step = TrainStep(prepared.model, self._config, compiled=environment.compiled)
        self._batches = prepared.batches
        self._val_batches = evaluation_batches(
            prepared.val,
            self._config.micro_batch_size,
            self._config.model.max_seq_len,
            self._config.val_tokens,
        )
        lengths = prepared.tokenizer.token_byte_lengths
        self._val_bytes = sum(batch_bytes(batch, lengths) for batch in self._val_batches)
        if self._val_bytes == 0:
            raise DataError(
                f"the validation text has {prepared.val.num_tokens} tokens, and none of "
                "them but the first is text; give more text or a larger 'val_fraction'"
            )
        flops = train_flops_per_token(self._config.model, self._config.model.max_seq_len)
        self._mfu_per_token = flops / (environment.gemm_gflops * 1e9)
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
        if state.trainer.get("data") != self._prepared.data_fingerprint:
            raise CheckpointError(
                f"{self._run.path}: the corpus '{self._config.data.corpus}' or its tokenizer is "
                "not the one that this run was trained on; put it back, or start a new run with "
                f"--init-from {self._run.path}"
            )
        self._best = state.trainer["best_val_loss"] or math.inf
        self._done = self._saved = state.step
        self._run.forget_after(state.step)
        # A crash may have come between the state and its showing as the model.
        publish_weights(self._run.path, save_state(self._run.path, state))
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
        return Outcome(self._done, self._evaluation, self._done == self._config.steps)

    def _loop(self, should_stop: Callable[[], bool]) -> None:
        # There the step is done by the time we look, and would be given the next one's time.
        on_cpu = mx.default_device().type == mx.DeviceType.cpu
        # On a CPU device the cores have enough to do.
        threads = 1 if on_cpu else max(1, min(4, (os.cpu_count() or 1) // 2))
        steps = range(self._done + 1, self._config.steps + 1)
        with Prefetcher(self._micro_batches, steps, workers=threads) as batches:
            if self._done == 0:  # from the first moment on, the run can be resumed and used
                save_description(self._run.path, self._config.model, self._prepared.tokenizer)
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
        while self._done < config.steps and not should_stop():
            step = self._done + 1
            loss, norm = self._step.run(step, next(batches))
            self._settle(pending)
            pending, self._done = _Pending(step, loss, norm), step
            last = step == config.steps
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

    def validate(self) -> Evaluation:
        """Measure the validation loss now, log it, and return it."""
        nll, num_tokens = self._step.evaluate(self._val_batches)
        if not math.isfinite(nll):
            self._diverged(self._done, "the validation loss", nll)
        evaluation = Evaluation.of(nll, num_tokens, self._val_bytes)
        self._evaluation, self._best = evaluation, min(self._best, evaluation.loss)
        self._validated = self._done
        self._run.log(
            {
                "step": self._done,
                "val_loss": evaluation.loss,
                "bits_per_byte": evaluation.bits_per_byte,
                "mlx_peak_bytes": mlx_peak_memory(),
                "rss_peak_bytes": peak_rss(),
            }
        )
        self._observer.validated(self._done, evaluation)
        return evaluation

    def save(self) -> None:
        """Save everything that a resumed run needs, and show the weights as the model.

        Raises `DivergedError` instead, and keeps the last good state, if these weights cannot
        compute a loss any more: a step's own loss was finite before its update.
        """
        if self._done not in (0, self._validated):
            nll, _ = self._step.evaluate([self._val_batches[0]])
            if not math.isfinite(nll):
                self._diverged(self._done, "the loss after the update", nll)
        facts: dict[str, Any] = {
            "data": self._prepared.data_fingerprint,
            "settings": self._settings(),
            "best_val_loss": self._best if math.isfinite(self._best) else None,
        }
        state = TrainingState(
            self._done,
            dict(tree_flatten(self._step.parameters)),
            self._step.optimizer_state,
            facts,
        )
        publish_weights(self._run.path, save_state(self._run.path, state))
        self._saved = self._done
        self._observer.saved(self._done)

    def _settings(self) -> dict[str, Any]:
        """Return by name what the weights depend on; the corpus has its fingerprint."""
        flat = dict(tree_flatten(to_dict(self._config)))
        return {n: v for n, v in flat.items() if n not in ("data.corpus", *_ONLY_WHEN_TO_LOOK)}

    def _same_settings(self, state: TrainingState) -> None:
        """Raise `CheckpointError` if `run.yaml` was edited: it would be neither run."""
        now = self._settings()
        for name, saved in state.trainer.get("settings", {}).items():
            if now.get(name) != saved:
                raise CheckpointError(
                    f"{self._run.path}: '{name}' was {saved} when step {state.step} was saved and "
                    f"is {now.get(name)} now; put it back in run.yaml, or start a new run with "
                    f"--init-from {self._run.path}"
                )

    def _settle(self, pending: _Pending | None) -> None:
        """Wait for a step's numbers, check and report them."""
        if pending is None:
            return
        loss, norm = _number(pending.loss), _number(pending.norm)
        now = time.perf_counter()
        speed, self._clock = self._config.tokens_per_step / (now - self._clock), now
        for name, value in (("the loss", loss), ("the gradient norm", norm)):
            if not math.isfinite(value):
                self._diverged(pending.step, name, value)
        assert self._config.optimizer.max_lr is not None
        factor = lr_factor(self._config.optimizer, pending.step, self._config.steps)
        report = StepReport(
            step=pending.step,
            loss=loss,
            lr=self._config.optimizer.max_lr * factor,
            grad_norm=norm,
            tok_per_sec=speed,
            mfu=speed * self._mfu_per_token,
            epoch=self._batches.epoch(pending.step * self._config.grad_accum_steps),
        )
        self._run.log(asdict(report))
        self._observer.stepped(report)

    def _diverged(self, step: int, what: str, value: float) -> NoReturn:
        raise DivergedError(
            f"step {step}: {what} is {value}; the last good weights are those of step "
            f"{self._saved} in {self._run.path}. Try a lower --max-lr or a longer --warmup"
            + (", or dtype float32" if self._config.dtype != "float32" else "")
        )

    def _micro_batches(self, step: int) -> list[Batch]:
        """Return the micro-batches of step `step`, counted from 1."""
        count = self._config.grad_accum_steps
        try:
            return [self._batches.batch((step - 1) * count + i) for i in range(count)]
        except DataError as e:
            raise DataError(f"step {step}: {e}") from e


def _number(array: mx.array) -> float:
    value = array.item()
    assert isinstance(value, float)
    return value
