"""`mlxgpt info`: what a model on disk is, before it is loaded, as a table or as JSON."""

from mlxgpt.cli.info.command import info

__all__ = ["info"]
