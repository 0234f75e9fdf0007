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
from mlxgpt.model import GPT, Dropout, GPTConfig
from mlxgpt.train.mlx_thread import MLXThread
from mlxgpt.train.objective import weighted_nll


class Worker:
    """Owns a network to trace through and, if `threaded`, the thread in which it is compiled."""

    def __init__(
        self, config: GPTConfig, *, dtype: mx.Dtype, dropout: float, compiled: bool, threaded: bool
    ) -> None:
        self._model = GPT(config)
        self._dtype, self._dropout, self._compiled = dtype, dropout, compiled
        self._functions: dict[str, Callable[..., Any]] = {}
        self._thread = MLXThread("mlxgpt-worker") if threaded else None

    def gradients(
        self, parameters: dict, rows: Batch, scale: float, key: mx.array
    ) -> Callable[[], tuple[mx.array, dict]]:
        """Begin to compute `scale` times the weighted nll of `rows`, and its gradients.

        The returned function waits for (loss, gradients). `key` decides the dropout.
        """
        return self._start("gradients", parameters, rows, scale, key)

    def nll(self, parameters: dict, rows: Batch) -> Callable[[], mx.array]:
        """Begin to compute the weighted nll of `rows`, without dropout; returns as `gradients`."""
        return self._start("nll", parameters, rows, 1.0, None)

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.close()

    def _start(
        self,
        name: Literal["gradients", "nll"],
        parameters: dict,
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
            arrays = [mx.array(a) for a in (rows.input_ids, rows.targets, rows.loss_weights)]
            segments = None if rows.segment_ids is None else mx.array(rows.segment_ids)
            return self._functions[name](own, *arrays, segments, mx.array(scale), key)

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
        input_ids: mx.array,
        targets: mx.array,
        loss_weights: mx.array,
        segment_ids: mx.array | None,
        scale: mx.array,
        key: mx.array | None,
    ) -> mx.array:
        self._model.update(tree_map(lambda p: p.astype(self._dtype), parameters))
        dropout = Dropout(self._dropout, key) if self._dropout and key is not None else None
        nll = weighted_nll(self._model, input_ids, targets, loss_weights, segment_ids, dropout)
        return nll * scale
