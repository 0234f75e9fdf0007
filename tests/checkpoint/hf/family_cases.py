"""Settings of small models in every family, in the words of transformers, for tests to share."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Fields = dict[str, Any]

SMALL: Fields = {
    "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 64,
    "tie_word_embeddings": False, "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 2,
    "pad_token_id": None,
}  # fmt: skip
IDS = np.random.Generator(np.random.Philox(key=1)).integers(0, 60, (2, 90)).tolist()
"""Longer than every window and every original context below."""

LLAMA3: Fields = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
YARN: Fields = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
SLIDING: Fields = {"use_sliding_window": True, "sliding_window": 8}
MIXED = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]


def rotary(theta: float = 10000.0, **fields: Any) -> Fields:
    return {"rope_parameters": {"rope_theta": theta, **fields}}


# name -> (model_type, settings)
CASES: dict[str, tuple[str, Fields]] = {
    "llama, multi-head": ("llama", {"num_key_value_heads": 4}),
    "llama, multi-query, tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama, head_dim": ("llama", {"head_dim": 20, "rms_norm_eps": 1e-3}),
    "llama, attention_bias": ("llama", {"attention_bias": True}),
    "llama, mlp_bias": ("llama", {"mlp_bias": True}),
    "llama, both biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, base 700": ("llama", rotary(700.0, rope_type="default")),
    "llama, linear": ("llama", rotary(rope_type="linear", factor=3.0)),
    "llama, dynamic": ("llama", rotary(rope_type="dynamic", factor=2.0)),
    "llama, llama3": ("llama", rotary(5e5, **LLAMA3)),
    "llama, yarn": ("llama", rotary(**YARN)),
    "llama, yarn without factor": ("llama", rotary(**YARN | {"factor": None})),
    "llama, yarn with a factor of attention": ("llama", rotary(**YARN, attention_factor=1.7)),
    "llama, yarn with mscale": ("llama", rotary(**YARN, mscale=1.3, mscale_all_dim=0.6)),
    "llama, yarn with mscale alone": ("llama", rotary(**YARN, mscale=2.0)),
    "llama, yarn, other borders": (
        "llama",
        rotary(500.0, **YARN, beta_fast=4.0, beta_slow=0.5, truncate=False),
    ),
    "mistral": ("mistral", {"sliding_window": 8}),
    "mistral, no window": ("mistral", {"sliding_window": None, "head_dim": 20}),
    "qwen2": ("qwen2", {}),
    "qwen2, last layers slide": ("qwen2", {**SLIDING, "max_window_layers": 2}),
    "qwen2, some layers slide": ("qwen2", {**SLIDING, "layer_types": MIXED}),
    "qwen2, all slide, yarn": ("qwen2", {**SLIDING, "max_window_layers": 0, **rotary(**YARN)}),
    "qwen3": ("qwen3", {"head_dim": 20}),
    "qwen3, tied, biases, sliding": (
        "qwen3",
        {"head_dim": 16, "tie_word_embeddings": True, "attention_bias": True, **SLIDING,
         "max_window_layers": 1},
    ),
    "smollm3": ("smollm3", {}),
    "smollm3, every second": ("smollm3", {"no_rope_layer_interval": 2, "attention_bias": True}),
    "smollm3, listed": ("smollm3", {"no_rope_layers": [0, 1, 1, 0], "mlp_bias": True}),
    "smollm3, sliding without rotary": (
        "smollm3",
        {**SLIDING, "no_rope_layer_interval": 2, "tie_word_embeddings": True},
    ),
    "smollm3, sliding with rotary, linear": (
        "smollm3",
        {**SLIDING, "layer_types": MIXED, **rotary(rope_type="linear", factor=2.0)},
    ),
}  # fmt: skip


def transformers_model(model_type: str, fields: Fields) -> Any:
    """A random model of that family, of which no gain is 1 and no bias 0."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(model_type, **SMALL | fields)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
                assert parameter.std() > 0.1, name
    return model


def transformers_logits(model: Any, ids: list[list[int]]) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.float().numpy()


def change(directory: Path, drop: tuple[str, ...] = (), **values: Any) -> None:
    """Rewrite config.json without the keys of `drop` and with other values."""
    file = directory / "config.json"
    config = json.loads(file.read_text())
    kept = {key: value for key, value in config.items() if key not in drop}
    file.write_text(json.dumps(kept | values))
