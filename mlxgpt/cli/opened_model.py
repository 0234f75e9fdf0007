"""What the user typed for a model and an adapter -> both looked at; then the network, loaded."""

from mlxgpt.checkpoint import attach, load_model, load_tokenizer, open_checkpoint, read_adapter
from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.model import GPT


class OpenedModel:
    """A model of which everything but the weights has been read."""

    def __init__(self, name: str, adapter: str | None) -> None:
        """Raises what `open_checkpoint`, `load_tokenizer` and `read_adapter` raise."""
        self.name = name
        self.checkpoint = open_checkpoint(name)
        self.tokenizer = load_tokenizer(self.checkpoint)
        self._adapter = None if adapter is None else read_adapter(adapter)

    def load(self) -> GPT | BorrowedModel:
        """Load the network, with the adapter on it."""
        network = load_model(self.checkpoint)
        if self._adapter is not None:
            attach(network, self._adapter)
        return network


def seen_at_once(network: GPT | BorrowedModel) -> int | None:
    """Return how many tokens of a text a network looks at; None: nobody knows."""
    return network.config.context if isinstance(network, GPT) else network.context
