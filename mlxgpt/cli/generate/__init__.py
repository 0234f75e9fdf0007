"""`mlxgpt generate`: a model and a prompt, or a file of prompts -> texts."""

from mlxgpt.cli.generate.command import generate

__all__ = ["generate"]
