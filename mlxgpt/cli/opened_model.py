"""What the user typed for a model and an adapter -> both looked at; then the network, loaded."""

from pathlib import Path

from mlxgpt.checkpoint import attach, load_model, load_tokenizer, open_checkpoint, read_adapter
from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.model import GPT
from mlxgpt.text.chat_template import ChatTemplate


class OpenedModel:
    """A model of which everything but the weights has been read."""

    def __init__(self, name: str, adapter: str | None) -> None:
        """Raises what `open_checkpoint`, `load_tokenizer` and `read_adapter` raise."""
        self.name = name
        self.checkpoint = open_checkpoint(name)
        self.tokenizer = load_tokenizer(self.checkpoint)
        self._adapter = None if adapter is None else read_adapter(adapter)

    def chat_template(self, file: Path | None) -> ChatTemplate | None:
        """Return the template of `file`, else that of the adapter, else the model's own, if any.

        Raises `TokenizerError` for one that cannot be used.
        """
        names = self.tokenizer.border_names()
        if file is not None:
            return ChatTemplate.read(file.expanduser(), names)
        if self._adapter is not None and self._adapter.chat_template is not None:
            name = f"the chat template of {self._adapter.source}"
            return ChatTemplate(self._adapter.chat_template, names, name=name)
        source, name = self.checkpoint.chat_template, f"the chat template of {self.checkpoint.path}"
        return None if source is None else ChatTemplate(source, names, name=name)

    def load(self) -> GPT | BorrowedModel:
        """Load the network, with the adapter on it."""
        network = load_model(self.checkpoint)
        if self._adapter is not None:
            attach(network, self._adapter)
        return network


def seen_at_once(network: GPT | BorrowedModel) -> int | None:
    """Return how many tokens of a text a network looks at; None: nobody knows."""
    return network.config.context if isinstance(network, GPT) else network.context
