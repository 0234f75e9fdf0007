"""What a trainer is given: a network, what it is trained on, and what its directory shows."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from mlxgpt.data import Batch
from mlxgpt.model import GPT
from mlxgpt.train.config import RunConfig
from mlxgpt.train.objective import Objective


class Job(Protocol):
    """A training, prepared: everything is there but the steps. One trainer does all of them."""

    @property
    def config(self) -> RunConfig:
        """Resolved: nothing is None that has a meaning."""
        ...

    @property
    def model(self) -> GPT:
        """The network with its first weights; what is not frozen in it is trained."""
        ...

    @property
    def objective(self) -> Objective:
        """What is minimized."""
        ...

    @property
    def fingerprint(self) -> str:
        """Names the data, and a frozen base; a resumed run must find the same."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """What the weights depend on, by name; a resumed run must find the same."""
        ...

    @property
    def validation(self) -> Sequence[Batch]:
        """What the validation loss is measured on; may be empty."""
        ...

    @property
    def validation_bytes(self) -> float:
        """Bytes of text that its weighted targets stand for."""
        ...

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of training on one token, for the MFU."""
        ...

    @property
    def shows(self) -> str:
        """Under which file name the run directory shows what is trained."""
        ...

    @property
    def source(self) -> str:
        """Where the data come from, for messages."""
        ...

    def anew(self, directory: Path) -> str:
        """Return the option with which a new run is begun in the place of the one in `directory`,
        for messages."""
        ...

    def batches(self, step: int) -> list[Batch]:
        """Return the micro-batches of optimizer step `step`, counted from 1.

        A pure function, called from several threads. Raises `DataError`.
        """
        ...

    def epoch(self, step: int) -> float:
        """Return how many passes over the data the first `step` steps are."""
        ...

    def describe_into(self, directory: Path) -> None:
        """Write what a run directory needs beside its weights, once. Raises `CheckpointError`."""
        ...
