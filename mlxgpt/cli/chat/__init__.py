"""`mlxgpt chat`: a model and somebody who asks it questions, one after the other."""

from mlxgpt.cli.chat.command import chat

__all__ = ["chat"]
