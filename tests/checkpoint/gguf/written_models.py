"""Small random models, written as GGUF and read back by the gguf package."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from mlxgpt.checkpoint.gguf.tensor_names import from_gguf_rows, our_name, permuted_heads
from mlxgpt.checkpoint.gguf.writing import write_gguf
from mlxgpt.model import GPT, GPTConfig
from mlxgpt.text import Tokenizer, train_bpe

TEXT = "the cat sat on the mat, and the dog lay down by the fire; 3 + 4 = 7\n" * 20
TOKENIZER = train_bpe([TEXT], 300)
SIZES: dict[str, Any] = {"n_layer": 4, "n_embd": 64, "max_seq_len": 128}


def model_of(random_gpt: Callable[..., GPT], tokenizer: Tokenizer, **fields: Any) -> GPT:
    """A model that never ends a text, and whose every likely token is a whole character."""
    model = random_gpt(**{**SIZES, "vocab_size": tokenizer.vocab_size, **fields})
    plain = [
        i < tokenizer.vocab_size and tokenizer.token_bytes(i).isascii() and i != tokenizer.eot_id
        for i in range(model.config.vocab)
    ]
    kept = mx.array(plain)[:, None]
    weights = {
        name: mx.where(kept, w, 0)
        for name, w in model.weights().items()
        if name in ("model.embed_tokens.weight", "lm_head.weight")
    }
    model.set_weights(weights)
    return model


def written(path: Path, model: GPT, **options: Any) -> Path:
    options = {
        "config": model.config,
        "weights": model.weights().items(),
        "tokenizer": TOKENIZER,
        "name": "tiny",
    } | options
    write_gguf(path, **options)
    return path


def read_back(path: Path, config: GPTConfig, architecture: str) -> dict[str, mx.array]:
    """Return the weights under our names, in float32."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    weights = {}
    for tensor in GGUFReader(path).tensors:
        name = our_name(tensor.name)
        if name is not None:
            w = mx.array(dequantize(tensor.data, tensor.tensor_type))
            heads = permuted_heads(name, architecture, config)
            weights[name] = w if heads is None else from_gguf_rows(w, heads)
    return weights
