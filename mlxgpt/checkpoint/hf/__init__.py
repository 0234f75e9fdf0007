"""The Hugging Face form: a directory with config.json, *.safetensors and tokenizer.json."""

from mlxgpt.checkpoint.hf.directory import HFDirectory

__all__ = ["HFDirectory"]
