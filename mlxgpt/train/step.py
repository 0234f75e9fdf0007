"""Micro-batches -> updated weights: the one compiled optimizer step; and batches -> their loss."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map, tree_unflatten

from mlxgpt import seeding
from mlxgpt.data import Batch
from mlxgpt.errors import CheckpointError
from mlxgpt.machine.freed_arrays import keep_freed_arrays
from mlxgpt.model import GPT
from mlxgpt.train.config import RunConfig
from mlxgpt.train.objective import Objective
from mlxgpt.train.optimizer import Optimizers
from mlxgpt.train.schedule import lr_factor
from mlxgpt.train.worker import Worker

T = TypeVar("T")


class TrainStep:
    """Holds what is trained, and its moments, in float32, and moves them on by one step at a time.

    That is what is not frozen in `model`; the rest is kept in the run's dtype, once for all
    threads. `config` must be resolved. With `compiled` False everything runs eagerly: the plain
    twin, and the way out where MLX finds no compiler.
    """

    def __init__(
        self, model: GPT, objective: Objective, config: RunConfig, *, compiled: bool = True
    ) -> None:
        assert config.workers is not None
        keep_freed_arrays()
        self._config = config
        dtype = getattr(mx, config.dtype)
        self._workers = [
            Worker(model, objective, dtype=dtype, compiled=compiled, threaded=config.workers > 1)
            for _ in range(config.workers)
        ]
        trained = dict(tree_flatten(model.trainable_parameters()))
        self.parameters: dict = tree_unflatten(
            [(name, p.astype(mx.float32)) for name, p in trained.items()]
        )
        self._frozen: dict = tree_unflatten(
            [
                (name, p.astype(dtype) if mx.issubdtype(p.dtype, mx.floating) else p)
                for name, p in model.weights().items()
                if name not in trained
            ]
        )
        self._optimizers = Optimizers(config.optimizer)
        self._optimizers.init(self.parameters)
        mx.eval(self.parameters, self._frozen, self._optimizers.state)
        if compiled:
            state = self._optimizers.state
            self._update = mx.compile(self._optimizers.update, inputs=state, outputs=state)
        else:
            self._update = self._optimizers.update

    def run(self, step: int, batches: Sequence[Batch]) -> tuple[mx.array, mx.array]:
        """Do step `step` (from 1) on the micro-batches `batches`.

        Returns the mean loss per unit of weight over all of them, and the gradient norm before
        clipping; neither is waited for on a GPU.
        """
        total = float(sum(b.loss_weights.sum(dtype=np.float64) for b in batches))
        assert total > 0, "a step without a single weighted target"
        loss, gradients = self._gradients(step, 0, batches[0], 1 / total)
        for micro, batch in enumerate(batches[1:], start=1):
            mx.eval(loss, gradients)  # so that the passes follow each other, not all in memory
            more_loss, more = self._gradients(step, micro, batch, 1 / total)
            loss, gradients = loss + more_loss, tree_map(mx.add, gradients, more)
        self._optimizers.set_rate(lr_factor(self._config.optimizer, step, self._config.num_steps))
        self.parameters, norm = self._update(gradients, self.parameters)
        mx.async_eval(self.parameters, self._optimizers.state, loss, norm)
        if len(self._workers) > 1:  # the threads must find evaluated weights
            mx.eval(self.parameters)
        return loss, norm

    def evaluate(self, batches: Iterable[Batch]) -> tuple[float, float]:
        """Return (sum of weighted nll in nats, sum of weights) over `batches`, without dropout.

        The sums go over all batches before anyone divides: a mean of batch means would depend on
        how the text was cut into batches.
        """
        losses: list[mx.array] = []
        weight = 0.0
        for batch in batches:
            losses += self._share(batch, self._start_nll)
            mx.async_eval(losses[-1])
            weight += float(batch.loss_weights.sum(dtype=np.float64))
        return math.fsum(np.array(loss) for loss in losses), weight

    def _start_nll(self, worker: Worker, rows: Batch, _: int) -> Callable[[], mx.array]:
        return worker.nll(self.parameters, self._frozen, rows)

    def _gradients(
        self, step: int, micro: int, batch: Batch, scale: float
    ) -> tuple[mx.array, dict]:
        """Sum loss and gradients over the workers, in their order."""

        def start(worker: Worker, rows: Batch, index: int) -> Callable[[], tuple[mx.array, dict]]:
            key = seeding.key(self._config.seed, "dropout", step, micro, index)
            return worker.gradients(self.parameters, self._frozen, rows, scale, key)

        (loss, gradients), *others = self._share(batch, start)
        for more_loss, more in others:
            loss, gradients = loss + more_loss, tree_map(mx.add, gradients, more)
        return loss, gradients

    def _share(
        self, batch: Batch, start: Callable[[Worker, Batch, int], Callable[[], T]]
    ) -> list[T]:
        """Give each worker its rows, let all of them work at once, and collect in order."""
        rows, count = batch.input_ids.shape[0], len(self._workers)
        edges = [rows * i // count for i in range(count + 1)]
        waiting = [
            start(worker, batch.rows(begin, end), i)
            for i, (worker, begin, end) in enumerate(
                zip(self._workers, edges, edges[1:], strict=False)
            )
            if begin < end
        ]
        return [wait() for wait in waiting]

    def close(self) -> None:
        """End the worker threads."""
        for worker in self._workers:
            worker.close()

    @property
    def optimizer_state(self) -> dict[str, mx.array]:
        """Moments, step counts and rates by name."""
        return dict(tree_flatten(self._optimizers.state))

    def restore(self, weights: dict[str, mx.array], optimizer: dict[str, mx.array]) -> None:
        """Take over saved weights and moments. Raises `CheckpointError` if they do not fit."""
        mine = dict(tree_flatten(self.parameters))
        _fits("weights", mine, weights)
        _fits("optimizer state", self.optimizer_state, optimizer)
        # In the order of a new run, not of the file: the gradient norm is summed in this order.
        self.parameters = tree_unflatten([(name, weights[name]) for name in mine])
        # The compiled update holds on to this very dict, so its leaves are replaced in place.
        _replace(self._optimizers.state, tree_unflatten(list(optimizer.items())))
        mx.eval(self.parameters, self._optimizers.state)


def _fits(what: str, mine: dict[str, mx.array], saved: dict[str, mx.array]) -> None:
    for name in sorted(set(mine) ^ set(saved)):
        raise CheckpointError(f"the saved {what} and this run disagree about '{name}'")
    for name, array in mine.items():
        if array.shape != saved[name].shape or array.dtype != saved[name].dtype:
            raise CheckpointError(
                f"the saved {what}: '{name}' is {saved[name].dtype} {list(saved[name].shape)}, "
                f"this run needs {array.dtype} {list(array.shape)}"
            )


def _replace(mine: dict | list, saved: dict | list) -> None:
    for key, value in mine.items() if isinstance(mine, dict) else enumerate(mine):
        if isinstance(value, (dict, list)):
            _replace(value, saved[key])
        else:
            mine[key] = saved[key]
