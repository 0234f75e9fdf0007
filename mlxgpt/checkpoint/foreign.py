"""A model of an architecture that is not ours; told apart from damage, since others may run it."""

from mlxgpt.errors import CheckpointError


class ForeignArchitecture(CheckpointError):
    """`GPT` cannot be configured to the model's architecture, which is called `model_type`."""

    def __init__(self, message: str, model_type: str) -> None:
        super().__init__(message)
        self.model_type = model_type
