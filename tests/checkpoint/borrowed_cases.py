"""Small random models of architectures that are mlx-lm's, made by mlx-lm and saved as a folder."""

import importlib
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlxgpt import seeding

_LLAMA_LIKE = {
    "hidden_size": 64, "num_hidden_layers": 3, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "rms_norm_eps": 1e-5,
}  # fmt: skip

CASES: dict[str, dict[str, Any]] = {
    "gemma2": _LLAMA_LIKE | {"head_dim": 16, "max_position_embeddings": 128},
    "gemma3_text": _LLAMA_LIKE
    | {"head_dim": 16, "sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 4}
    | {"max_position_embeddings": 128},
    "phi3": _LLAMA_LIKE | {"max_position_embeddings": 128},
    "olmo2": _LLAMA_LIKE | {"max_position_embeddings": 128, "tie_word_embeddings": False},
    "stablelm": _LLAMA_LIKE
    | {"rope_theta": 1e4, "use_qkv_bias": True, "partial_rotary_factor": 0.25}
    | {"layer_norm_eps": 1e-5, "max_position_embeddings": 128},
    "gpt_neox": {
        "max_position_embeddings": 128, "hidden_size": 64, "num_attention_heads": 4,
        "num_hidden_layers": 3, "layer_norm_eps": 1e-5, "vocab_size": 61, "rotary_emb_base": 10000,
        "rotary_pct": 0.25,
    },
    "mixtral": _LLAMA_LIKE
    | {"num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 128},
    "gpt2": {
        "n_ctx": 128, "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 128,
        "layer_norm_epsilon": 1e-5, "vocab_size": 61,
    },
    "mamba2": {
        "hidden_size": 32, "num_heads": 4, "head_dim": 16, "vocab_size": 61, "state_size": 8,
        "num_hidden_layers": 2, "layer_norm_epsilon": 1e-5, "conv_kernel": 4, "n_groups": 1,
        "use_bias": False, "use_conv_bias": True, "intermediate_size": 64,
        "time_step_limit": [0.0, 1e9], "time_step_rank": 4, "tie_word_embeddings": True,
        "residual_in_fp32": False, "rms_norm": True, "time_step_min": 1e-3, "time_step_max": 0.1,
        "chunk_size": 16,
    },
}  # fmt: skip


def make(
    directory: Path, model_type: str, dtype: mx.Dtype = mx.float32, **changes: Any
) -> nn.Module:
    """Save a random model of that type into `directory` and return mlx-lm's network with it."""
    module = importlib.import_module(f"mlx_lm.models.{model_type}")
    config = {"model_type": model_type, **CASES[model_type], **changes}
    network = module.Model(module.ModelArgs.from_dict(config))
    weights = {}
    for name, old in tree_flatten(network.parameters()):
        noise = mx.random.normal(old.shape, key=seeding.key(0, f"test/{name}"))
        quiet = "embed" in name or "wte" in name  # else a tied head repeats its token for ever
        scale = 0.3 if old.ndim == 1 else (0.5 if quiet else 2.0) * old.shape[-1] ** -0.5
        weights[name] = ((old.ndim == 1) + scale * noise).astype(dtype)
    network.load_weights(list(weights.items()))
    directory.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(directory / "model.safetensors"), weights)
    (directory / "config.json").write_text(json.dumps(config))
    return network.eval()


def edit(directory: Path, **config: Any) -> None:
    """Change the config.json of a folder; None takes a key away."""
    file = directory / "config.json"
    changed = json.loads(file.read_text()) | config
    file.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}))
