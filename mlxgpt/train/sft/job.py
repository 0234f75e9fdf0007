"""A fine-tuning, prepared: examples, how they are drawn, and a network part of which is trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from mlxgpt.config import to_dict
from mlxgpt.data import Batch
from mlxgpt.data.sft.batching import micro_batches
from mlxgpt.data.sft.drawing import Drawing
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.example_set import ExampleSet
from mlxgpt.data.sft.packing import Pieces
from mlxgpt.model import GPT
from mlxgpt.train.objective import Objective
from mlxgpt.train.prepared import ONLY_WHEN_TO_LOOK
from mlxgpt.train.sft.config import SFTConfig
from mlxgpt.train.sft.tuned import Tuned

# Names of files and of the base: each has its fingerprint. How a step is cut changes no loss.
_NOT_SETTINGS = ("base", "data.train", "data.valid", *ONLY_WHEN_TO_LOOK)


@dataclass(frozen=True)
class SFTJob:
    """Everything that a fine-tuning needs, in memory: a `Job`."""

    config: SFTConfig
    """Resolved."""
    examples: ExampleSet
    pieces: Pieces | None
    """What is drawn instead of the examples, where those are joined and cut."""
    drawing: Drawing
    tuned: Tuned
    """The base, with what is trained of it or beside it."""
    validation: Sequence[Batch]
    validation_bytes: float
    flops_per_token: float
    template: str
    """What the chat template is called."""
    notes: tuple[str, ...] = ()
    """What the user should know."""

    @property
    def model(self) -> GPT:
        return self.tuned.model

    @property
    def objective(self) -> Objective:
        config = self.config
        return Objective(
            adapter_dropout=config.tuning.dropout or 0.0,
            checkpoint_layers=config.checkpoint_layers,
            logits_chunk=config.logits_chunk,
        )

    @property
    def fingerprint(self) -> str:
        return f"{self.examples.fingerprint}/{self.tuned.fingerprint}"

    @property
    def settings(self) -> dict[str, Any]:
        flat = dict(tree_flatten(to_dict(self.config)))
        return {name: value for name, value in flat.items() if name not in _NOT_SETTINGS}

    @property
    def shows(self) -> str:
        return self.tuned.shows

    @property
    def source(self) -> str:
        return f"what '{self.config.data.train}' gives, or the base '{self.config.base}',"

    def anew(self, directory: Path) -> str:  # noqa: ARG002
        return "another --out"

    def batches(self, step: int) -> list[Batch]:
        config = self.config
        rows = [[self._drawn(index, step) for index in row] for row in self.drawing.rows(step - 1)]
        budget = config.data.tokens_per_batch
        at_once = None if budget is not None else config.micro_batch_size
        return micro_batches(rows, rows_at_once=at_once, tokens_at_once=budget)

    def _drawn(self, index: int, step: int) -> Example:
        if self.pieces is not None:
            return self.pieces.examples[index]
        return self.examples.drawn(index, step)

    def epoch(self, step: int) -> float:
        return self.drawing.epoch(step)

    def describe_into(self, directory: Path) -> None:
        self.tuned.describe_into(directory)
