"""Step -> learning-rate factor in [0, 1]: warm-up, then the shape, a pure function."""

import math

from mlxgpt.train.config import OptimizerConfig

_WSD_DECAY = 0.2


def lr_factor(config: OptimizerConfig, step: int, steps: int) -> float:
    """Return the factor on the peak rate for step `step` of `steps`, counted from 1.

    The rate rises linearly to 1 at step `warmup_steps`, stays there for one more, and would reach
    `min_lr_ratio` one step after the last, so that no step is without effect (cosine: Loshchilov
    and Hutter, 2017; wsd: Hu et al., 2024, with a linear end).
    """
    warmup = config.warmup_steps or 0
    if step <= warmup:
        return step / warmup
    progress = (step - 1 - warmup) / (steps - warmup)
    low = config.min_lr_ratio
    match config.lr_schedule:
        case "constant":
            return 1.0
        case "cosine":
            return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * progress))
        case "linear":
            return low + (1 - low) * (1 - progress)
        case "wsd":
            fall = max(0.0, (progress - (1 - _WSD_DECAY)) / _WSD_DECAY)
            return low + (1 - low) * (1 - fall)
