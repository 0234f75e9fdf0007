"""GGUF, the form of llama.cpp and its kin: one file with weights, settings and tokenizer."""

from mlxgpt.checkpoint.gguf.file import GGUFFile

__all__ = ["GGUFFile"]
