"""Some rows of a batch -> their loss, with or without gradients, compiled in a thread of its own.

On a CPU several such threads share a batch: MLX runs everything but matrix products on one core, so
that two threads with one BLAS thread each are faster than one with two, and far less disturbed by
other programs. On a GPU there is one, and it works in the caller's thread.
"""

from collections.abc import Callable
from typing import Any, Literal

import mlx.core as mx
from mlx.utils import tree_map

from mlxgpt.data import Batch
from mlxgpt.model import GPT
from mlxgpt.model.shared_copy import shared_copy
from mlxgpt.train.mlx_thread import MLXThread
from mlxgpt.train.objective import Inputs, Objective


class Worker:
    """Owns a network to trace through and, if `threaded`, the thread in which it is compiled."""

    def __init__(
        self, model: GPT, objective: Objective, *, dtype: mx.Dtype, compiled: bool, threaded: bool
    ) -> None:
        self._model = shared_copy(model)
        self._objective, self._dtype, self._compiled = objective, dtype, compiled
        self._functions: dict[str, Callable[..., Any]] = {}
        self._thread = MLXThread("mlxgpt-worker") if threaded else None

    def gradients(
        self, parameters: dict, frozen: dict, rows: Batch, scale: float, key: mx.array
    ) -> Callable[[], tuple[mx.array, dict]]:
        """Begin to compute `scale` times the weighted nll of `rows`, and its gradients.

        Those are with respect to `parameters`; the network's other weights are `frozen`, in the
        dtype in which they are computed with. The returned function waits for (loss, gradients).
        `key` decides the dropout.
        """
        return self._start("gradients", parameters, frozen, rows, scale, key)

    def nll(self, parameters: dict, frozen: dict, rows: Batch) -> Callable[[], mx.array]:
        """Begin to compute the weighted nll of `rows`, without dropout; returns as `gradients`."""
        return self._start("nll", parameters, frozen, rows, 1.0, None)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()

    def _start(
        self,
        name: Literal["gradients", "nll"],
        parameters: dict,
        frozen: dict,
        rows: Batch,
        scale: float,
        key: mx.array | None,
    ) -> Callable[[], Any]:
        """Call the function `name`, compiled, here or in the thread.

        An MLX graph belongs to the thread that built it: what goes over must be evaluated, and so
        must what comes back. So must a compiled function be made in the thread that calls it.
        """

        # `mx.value_and_grad` puts its tracers into the very dicts it is given, for a while.
        own = tree_map(lambda p: p, parameters)

        def run() -> Any:
            if name not in self._functions:
                function = self._loss if name == "nll" else mx.value_and_grad(self._loss)
                self._functions[name] = mx.compile(function) if self._compiled else function
            inputs = self._objective.inputs(rows)
            return self._functions[name](own, frozen, inputs, mx.array(scale), key)

        if self._thread is None:
            result = run()
            return lambda: result

        def run_and_wait() -> Any:
            result = run()
            mx.eval(result)
            return result

        mx.eval(key)
        return self._thread.submit(run_and_wait).result

    def _loss(
        self,
        parameters: dict,
        frozen: dict,
        inputs: Inputs,
        scale: mx.array,
        key: mx.array | None,
    ) -> mx.array:
        self._model.update(frozen)
        self._model.update(tree_map(lambda p: p.astype(self._dtype), parameters))
        return self._objective.nll(self._model, inputs, key) * scale
