"""A pre-training, prepared: windows of text, and a network all of whose weights are trained."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlx.utils import tree_flatten

from mlxgpt.checkpoint import save_description
from mlxgpt.config import to_dict
from mlxgpt.data import (
    Batch,
    Corpus,
    EvaluationBatches,
    StreamingWindows,
    TokenFile,
    WindowBatches,
)
from mlxgpt.model import GPT, train_flops_per_token
from mlxgpt.text import Tokenizer
from mlxgpt.train.config import TrainConfig
from mlxgpt.train.objective import Objective

ONLY_WHEN_TO_LOOK = ("eval_every", "save_every", "val_tokens")
"""Settings that change no weight."""


@dataclass(frozen=True)
class Prepared:
    """Everything that a training from text needs, in memory or mapped: a `Job`."""

    config: TrainConfig
    """Resolved."""
    corpus: Corpus
    tokenizer: Tokenizer
    windows: WindowBatches | StreamingWindows
    """Of the training text: cut from its ids, or encoded window by window."""
    val: TokenFile
    reused: bool
    """Whether ids and text were found in the cache."""
    model: GPT
    validation: EvaluationBatches
    validation_bytes: float
    notes: tuple[str, ...] = ()
    """What the user should know: what was asked for and is not done."""

    shows = "model.safetensors"

    @property
    def objective(self) -> Objective:
        return Objective(dropout=self.config.dropout)

    @property
    def fingerprint(self) -> str:
        return f"{self.windows.fingerprint}/{self.val.fingerprint}"

    @property
    def settings(self) -> dict[str, Any]:
        flat = dict(tree_flatten(to_dict(self.config)))
        # The corpus has its fingerprint.
        return {n: v for n, v in flat.items() if n not in ("data.corpus", *ONLY_WHEN_TO_LOOK)}

    @property
    def flops_per_token(self) -> float:
        return train_flops_per_token(self.config.model, self.config.model.max_seq_len)

    @property
    def source(self) -> str:
        return f"the corpus '{self.config.data.corpus}', or its tokenizer,"

    def anew(self, directory: Path) -> str:
        return f"--init-from {directory}"

    def batches(self, step: int) -> list[Batch]:
        count = self.config.grad_accum_steps
        return [self.windows.batch((step - 1) * count + i) for i in range(count)]

    def epoch(self, step: int) -> float:
        return self.windows.epoch(step * self.config.grad_accum_steps)

    def describe_into(self, directory: Path) -> None:
        save_description(directory, self.config.model, self.tokenizer)
