"""The families of models that are one `GPT`, configured: what a config.json of each can say.

A key that is absent has the value that transformers (5.24) gives it; mlx-lm (0.32) takes others
in places: a base of 1,000,000 for a Qwen 2, no window for a Mistral, tied embeddings for a Llama.
"""

from dataclasses import dataclass
from typing import Literal

from mlxgpt.model import GPTConfig


@dataclass(frozen=True, kw_only=True)
class Family:
    """One `model_type`."""

    name: str
    """`model_type`."""
    architecture: str
    """What transformers calls its class."""
    bias_keys: tuple[str, ...] = ()
    """Which of `attention_bias` (q, k, v and o) and `mlp_bias` it has."""
    qkv_bias: bool = False
    """Queries, keys and values always have biases."""
    qk_norm: bool = False
    """Heads of queries and keys are always normalized."""
    no_rope: bool = False
    """It has `no_rope_layers`."""
    windows: Literal["none", "every layer", "by layer"] = "none"
    """Which layers a `sliding_window` is for."""
    whole_heads: bool = False
    """transformers reads it only if `hidden_size` is a multiple of the number of heads."""

    # What an absent key means.
    kv_heads: int | None = None
    """`num_key_value_heads`; None: as many as there are query heads."""
    head_dim: int | None = None
    """None: `hidden_size` / heads."""
    context: int
    """`max_position_embeddings`."""
    theta: float = 10000.0
    """`rope_theta`."""
    tied: bool = False
    """`tie_word_embeddings`."""
    window: int | None = None
    """`sliding_window`."""


FAMILIES = {
    family.name: family
    for family in (
        Family(
            name="llama",
            architecture="LlamaForCausalLM",
            bias_keys=("attention_bias", "mlp_bias"),
            whole_heads=True,
            context=2048,
        ),
        Family(
            name="mistral",
            architecture="MistralForCausalLM",
            windows="every layer",
            kv_heads=8,
            context=131072,
            window=4096,
        ),
        Family(
            name="qwen2",
            architecture="Qwen2ForCausalLM",
            qkv_bias=True,
            windows="by layer",
            kv_heads=32,
            context=32768,
            window=4096,
        ),
        Family(
            name="qwen3",
            architecture="Qwen3ForCausalLM",
            bias_keys=("attention_bias",),
            qk_norm=True,
            windows="by layer",
            kv_heads=32,
            head_dim=128,
            context=32768,
            window=4096,
        ),
        Family(
            name="smollm3",
            architecture="SmolLM3ForCausalLM",
            bias_keys=("attention_bias", "mlp_bias"),
            no_rope=True,
            windows="by layer",
            kv_heads=4,
            context=32768,
            theta=2000000.0,
            tied=True,
        ),
    )
}

_Q_ONLY = "qkv_bias without o_bias"
_QKVO = "qkv_bias with o_bias"
_UNEVEN = "n_embd that is no multiple of n_head"


def features(config: GPTConfig) -> list[str]:
    """Return, in words, where `config` differs from the plain recipe that every family has."""
    found = {
        _Q_ONLY: config.qkv_bias and not config.o_bias,
        _QKVO: config.qkv_bias and config.o_bias,
        "o_bias without qkv_bias": config.o_bias and not config.qkv_bias,
        "mlp_bias": config.mlp_bias,
        "qk_norm": config.qk_norm,
        "no_rope_layers": bool(config.no_rope_layers),
        "sliding_window": config.sliding_window is not None and config.sliding_layers is None,
        "sliding_layers": config.sliding_layers is not None,
        _UNEVEN: config.n_embd % config.n_head != 0,
    }
    return [name for name, there in found.items() if there]


def supported(family: Family) -> set[str]:
    """Return those `features` that a config.json of `family` can say."""
    can = {
        _Q_ONLY: family.qkv_bias,
        _QKVO: "attention_bias" in family.bias_keys,
        "mlp_bias": "mlp_bias" in family.bias_keys,
        "qk_norm": family.qk_norm,
        "no_rope_layers": family.no_rope,
        "sliding_window": family.windows != "none",
        "sliding_layers": family.windows == "by layer",
        _UNEVEN: not family.whole_heads,
    }
    return {name for name, there in can.items() if there}


def always(family: Family) -> set[str]:
    """Return those `features` without which there is no model of `family`."""
    has = {_Q_ONLY: family.qkv_bias, "qk_norm": family.qk_norm}
    return {name for name, there in has.items() if there}
