"""GPTConfig -> a config.json of the family that has its features."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from mlxgpt.checkpoint.hf.families import FAMILIES, Family, always, features, supported
from mlxgpt.checkpoint.hf.quantization_settings import quantization_keys
from mlxgpt.checkpoint.hf.rotary_settings import rotary_keys
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, Quantization


def to_hf(
    config: GPTConfig,
    *,
    bos_token_id: int | None,
    eos_token_ids: list[int] | int | None,
    pad_token_id: int | None = None,
    dtype: str = "float32",
    quantization: Mapping[str, Quantization] | None = None,
) -> dict[str, Any]:
    """Return a config.json that transformers and mlx-lm read as the same network.

    `quantization` names the quantized modules. Rotary settings are written twice, since
    transformers 5 reads `rope_parameters` and mlx-lm `rope_theta` and `rope_scaling`;
    `tie_word_embeddings` always, since their defaults differ. mlx-lm 0.32 ignores windows in a
    Mistral or Qwen, so it agrees only for texts that fit into one.

    Raises `CheckpointError` for features that no one family has together.
    """
    family = _family_for(config)
    eos = eos_token_ids
    if isinstance(eos, list) and len(eos) < 2:
        eos = eos[0] if eos else None
    return {
        "architectures": [family.architecture],
        "model_type": family.name,
        "hidden_size": config.n_embd,
        "intermediate_size": config.mlp_size,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_seq_len,
        **rotary_keys(config),
        **_layer_keys(config, family),
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos,
        "pad_token_id": pad_token_id,
        "hidden_act": "silu",
        "attention_bias": config.o_bias,
        "mlp_bias": config.mlp_bias,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": dtype,
        **quantization_keys(config, quantization or {}),
    }


def _family_for(config: GPTConfig) -> Family:
    wanted = set(features(config))
    for family in FAMILIES.values():
        if always(family) <= wanted <= supported(family):
            return family
    possible = [supported(family) for family in FAMILIES.values()]
    for pair in combinations(features(config), 2):
        if not any(set(pair) <= can for can in possible):
            raise CheckpointError(
                f"no family of models has {pair[0]} together with {pair[1]}, so other tools cannot "
                "open this one"
            )
    raise CheckpointError(
        f"no family of models has {' and '.join(features(config))}, so other tools cannot open "
        "this one"
    )


def _layer_keys(config: GPTConfig, family: Family) -> dict[str, Any]:
    """Return the keys in which layers differ from each other."""
    if family.windows == "none":
        return {}
    if family.windows == "every layer":
        return {"sliding_window": config.sliding_window}
    window, layers = config.sliding_window, range(config.n_layer)
    slides = [config.window(i) is not None for i in layers]
    full = slides.count(False)
    keys: dict[str, Any] = {
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "layer_types": ["sliding_attention" if s else "full_attention" for s in slides],
    }
    if family.no_rope:
        return keys | {"no_rope_layers": [int(i not in config.no_rope_layers) for i in layers]}
    # What older versions of transformers read instead of layer_types: the last layers slide.
    return keys | {"max_window_layers": full if not any(slides[:full]) else config.n_layer}
