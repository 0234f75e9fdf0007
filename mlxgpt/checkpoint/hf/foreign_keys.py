"""A config.json -> a refusal by name, if it asks for what this network has no part for.

Which keys may pass unread? What a `model_type` computes is fixed by the code of that family, which
reads the keys of `families.py` and no others: a key that it does not know (`use_cache`, the name
of a tool, a remark) cannot change a logit, and new ones appear every month, so unknown keys pass.
But a key by which *other* families change their logits, with a value that does change them, says
that somebody's own code made this model under a known name. Those are listed here and refused.
Parts that have weights of their own need no list: an unexpected tensor is refused by its name.
"""

from typing import Any

from mlxgpt.checkpoint.hf.config_values import ConfigValues

_OFF = (None, False, 0)
_ONE = (None, 1)

_HARMLESS: dict[str, tuple[Any, ...]] = {  # key -> the values with which it changes nothing
    # activation
    "hidden_act": (None, "silu", "swish"),
    "hidden_activation": (None, "silu", "swish"),
    # factors and caps on the way
    "attn_logit_softcapping": _OFF,
    "final_logit_softcapping": _OFF,
    "logits_soft_cap": _OFF,
    "logit_scale": _ONE,
    "logits_scaling": _ONE,
    "embedding_multiplier": _ONE,
    "residual_multiplier": _ONE,
    "attention_multiplier": (None,),
    "query_pre_attn_scalar": (None,),
    "scale_emb": _ONE,
    "scale_depth": (None,),
    "dim_model_base": (None,),
    "attn_temperature_tuning": _OFF,
    "clip_qkv": _OFF,
    # which tokens are seen
    "attention_chunk_size": _OFF,
    "sliding_window_pattern": _OFF,
    "global_attn_every_n_layers": _OFF,
    "use_bidirectional_attention": _OFF,
    "is_encoder_decoder": _OFF,
    "add_cross_attention": _OFF,
    "cross_attention_layers": (None, []),
    "num_kv_shared_layers": _OFF,
    "kv_lora_rank": _OFF,
    # positions
    "partial_rotary_factor": _ONE,
    "rotary_pct": _ONE,
    "rotary_percent": _ONE,
    "rope_traditional": _OFF,
    "rope_interleaved": _OFF,
    "rope_local_base_freq": (None,),
    "alibi": _OFF,
    "position_embedding_type": (None, "rope", "rotary", "absolute"),
    # norms and blocks
    "use_qk_norm": _OFF,
    "qk_layernorm": _OFF,
    "use_parallel_residual": _OFF,
    "parallel_attn": _OFF,
    # experts
    "num_experts": _OFF,
    "num_local_experts": _OFF,
    "n_routed_experts": _OFF,
    "num_experts_per_tok": _OFF,
    "moe_intermediate_size": _OFF,
    # other inputs
    "text_config": (None,),
    "vision_config": (None,),
    "audio_config": (None,),
    # rounding of what flows
    "quantize_activations": _OFF,
}


def refuse_foreign(values: ConfigValues) -> None:
    """Raise `CheckpointError` naming a key that asks for another network."""
    for key, harmless in _HARMLESS.items():
        value = values.raw.get(key)
        if value not in harmless:
            raise values.error(f"{key} = {value!r} is not supported")
