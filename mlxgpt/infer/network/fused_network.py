"""A GPT in float32 on a CPU: the logits of `GPTNetwork`, its twin, by fewer and faster operations.

Queries, keys and values come out of one product, residuals are added inside of products, rotary
angles are computed once for all layers, and what is left between products is in step_kernels.py.
"""

import mlx.core as mx

from mlxgpt.infer.network.fused_weights import FusedLayer, FusedWeights, can_fuse
from mlxgpt.infer.network.step_kernels import StepKernels, step_kernels
from mlxgpt.infer.network.weight_watch import WeightWatch
from mlxgpt.infer.paged.step_attention import StepAttention
from mlxgpt.machine.compiler import compile_available
from mlxgpt.model import GPT, narrower
from mlxgpt.model.rotary import Rotary


class FusedNetwork:
    """A `Network` for a GPT of plain modules: `can_fuse(model)` must hold.

    The model goes on as it is, with weights that are views of this network's matrices, so that none
    is in memory twice. Whoever holds the model's old arrays keeps them alive.
    """

    def __init__(self, model: GPT, *, compiled: bool | None = None) -> None:
        """`compiled` says whether to use `mx.compile`; None: if it works here."""
        assert can_fuse(model)
        self._compiled = bool(compile_available()) if compiled is None else compiled
        config = self._config = model.config
        self._model = model
        self._weights = FusedWeights(model)
        self._watch = WeightWatch(model)
        self._windows = [narrower(config.context, config.window(i)) for i in range(config.n_layer)]
        self._turned = config.n_head + config.kv_heads
        self._rotary = Rotary(config.head_size, config.rope_theta, config.rope_scaling)
        self._unit = mx.repeat(mx.array([1.0, 0.0]), config.head_size // 2)
        self._eps = mx.array(config.rms_norm_eps)
        self._mean = mx.full((config.n_embd, 1), 1 / config.n_embd)
        self._head_mean = mx.full((config.head_size, 1), 1 / config.head_size)
        mx.eval(self._unit, self._eps, self._mean, self._head_mean)

    def __call__(self, input_ids: mx.array, attention: StepAttention, wanted: mx.array) -> mx.array:
        weights, kernels = self._weights, self._kernels(input_ids)
        angles = self._angles(attention.positions)
        x = weights.embedding[input_ids]  # (N, C)
        for i, layer in enumerate(weights.layers):
            if i:  # begun while the operations of the next layer are put together
                mx.async_eval(x)
            q, k, v = self._project(i, layer, x, angles, kernels)
            seen = attention(i, q, k, v, self._windows[i]).reshape(x.shape[0], -1)
            if i + 1 == len(weights.layers):  # nothing more is needed of the other tokens
                x, seen = x[wanted], seen[wanted]
                kernels = self._kernels(wanted)
            x = layer.output.added(x, seen)
            y = kernels.norm(x, layer.mlp_gains, self._mean, self._eps)
            x = layer.down.added(x, kernels.swiglu(layer.gate(y), layer.up(y)))
        return weights.head(kernels.norm(x, weights.gains, self._mean, self._eps))

    def stale(self) -> bool:
        return self._watch.changed()

    def _kernels(self, tokens: mx.array) -> StepKernels:
        return step_kernels(tokens.shape[0], compiled=self._compiled)

    def _angles(self, positions: mx.array) -> tuple[mx.array, mx.array]:
        """Return cosines and sines as `rotate` takes them, of the very angles of the GPT."""
        n, d = positions.shape[0], self._config.head_size
        unit = mx.broadcast_to(self._unit, (1, 1, n, d))
        turned = self._rotary(unit, positions[None]).reshape(n, 1, 2, d // 2)
        cosine, sine = turned[:, :, :1], turned[:, :, 1:]
        return (
            mx.concatenate([cosine, cosine], axis=2),
            mx.concatenate([-sine, sine], axis=2),
        )

    def _project(
        self,
        index: int,
        layer: FusedLayer,
        x: mx.array,
        angles: tuple[mx.array, mx.array],
        kernels: StepKernels,
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Return q (N, H, D), k and v (N, Hkv, D) for x (N, C)."""
        config, n = self._config, x.shape[0]
        y = kernels.norm(x, layer.input_gains, self._mean, self._eps)
        heads = layer.qkv(y).reshape(n, -1, config.head_size)
        qk, v = heads[:, : self._turned], heads[:, self._turned :]
        if layer.head_gains is not None:
            qk = kernels.norm(qk, layer.head_gains, self._head_mean, self._eps)
        if index not in config.no_rope_layers:
            pairs = qk.reshape(n, self._turned, 2, -1)
            qk = kernels.rotate(pairs, *angles).reshape(n, self._turned, -1)
        return qk[:, : config.n_head], qk[:, config.n_head :], v
