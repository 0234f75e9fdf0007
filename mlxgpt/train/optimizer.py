"""Config -> MLX optimizers, each for its kind of weight; decay on matrices only.

MLX's defaults differ from the literature in two places, mended here: its AdamW starts without bias
correction and decays everything it is given, and its Muon mixes the decay into the gradient.
"""

from collections.abc import Callable
from typing import cast

import mlx.core as mx
import mlx.optimizers as optim
from mlx.utils import tree_map

from mlxgpt.train.config import OptimizerConfig


class DecoupledMuon(optim.Muon):
    """Muon (Jordan et al., 2024) with the decay of AdamW: w (1 - lr decay) - lr update."""

    def __init__(self, learning_rate: float, momentum: float, decay: float) -> None:
        super().__init__(learning_rate, momentum=momentum, weight_decay=0.0)
        self.decay = decay

    def apply_single(self, gradient: mx.array, parameter: mx.array, state: dict) -> mx.array:
        decayed = parameter * (1 - self.learning_rate.astype(parameter.dtype) * self.decay)
        return super().apply_single(gradient, decayed, state)


class Optimizers:
    """The optimizers of a run behind one `update`; rates are set from outside, step by step."""

    def __init__(self, config: OptimizerConfig) -> None:
        assert config.max_lr is not None

        def adamw(decay: float) -> optim.AdamW:
            return optim.AdamW(
                learning_rate=config.max_lr,  # type: ignore[arg-type]
                betas=[config.beta1, config.beta2],
                eps=config.eps,
                weight_decay=decay,
                bias_correction=True,
            )

        gains, matrices = adamw(0.0), adamw(config.weight_decay)
        self._peaks = [config.max_lr, config.max_lr]
        self._parts: list[optim.Optimizer] = [gains, matrices]
        filters: list[Callable[[str, mx.array], bool]] = [lambda _, w: w.ndim < 2]
        if config.name == "muon":
            assert config.muon_lr is not None
            assert config.muon_momentum is not None
            muon = DecoupledMuon(config.muon_lr, config.muon_momentum, config.weight_decay)
            self._parts.insert(1, muon)
            self._peaks.insert(1, config.muon_lr)
            filters.append(lambda name, w: w.ndim == 2 and ".layers." in name)
        self._multi = optim.MultiOptimizer(self._parts, filters)
        self._clip = config.grad_clip

    def init(self, parameters: dict) -> None:
        """Make zero moments for `parameters`."""
        self._multi.init(parameters)

    def set_rate(self, factor: float) -> None:
        """Set all rates to `factor` times their peak."""
        for part, peak in zip(self._parts, self._peaks, strict=True):
            part.learning_rate = peak * factor  # type: ignore[assignment]

    def update(self, gradients: dict, parameters: dict) -> tuple[dict, mx.array]:
        """Return new parameters, and the global norm of the gradients before clipping."""
        clipped, norm = optim.clip_grad_norm(gradients, self._clip or float("inf"))
        if self._clip:
            gradients = cast(dict, clipped)
        updated = self._multi.apply_gradients(gradients, parameters)
        # It merges its parts in their own order, but sums (the norm) go by the order of the names:
        # a run and its resumed half would differ in the last bit.
        return cast(dict, tree_map(lambda _, new: new, parameters, updated)), norm

    @property
    def state(self) -> dict:
        """Moments, step counts and rates: arrays that a compiled update reads and replaces."""
        return self._multi.state
