"""What a training tells those who watch it."""

from dataclasses import dataclass
from typing import Protocol

from mlxgpt.train.evaluate import Evaluation


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """One finished step."""

    step: int
    loss: float
    """Mean loss of the step's target tokens, in nats, before the update."""
    lr: float
    """AdamW's learning rate in this step."""
    grad_norm: float
    """Global norm of the gradients before clipping."""
    tok_per_sec: float
    """Tokens of the step, padding aside, over its wall time."""
    mfu: float
    """Share of the measured GEMM speed that the model's operations reached."""
    epoch: float
    """Passes over the training data so far."""
    num_tokens: int
    """Tokens of the step, padding aside."""
    num_targets: int
    """Targets of the step that count in its loss."""


class Observer(Protocol):
    """Receives the events of `Trainer.run`; a progress line in a terminal, a list in a test."""

    def stepped(self, report: StepReport) -> None: ...

    def validated(self, step: int, evaluation: Evaluation) -> None: ...

    def saved(self, step: int) -> None: ...


class Silent:
    """Watches and says nothing."""

    def stepped(self, report: StepReport) -> None: ...

    def validated(self, step: int, evaluation: Evaluation) -> None: ...

    def saved(self, step: int) -> None: ...
