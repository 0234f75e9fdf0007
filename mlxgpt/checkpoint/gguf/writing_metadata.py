"""GPTConfig -> the architecture and the settings by which llama.cpp computes the same network.

Each architecture of llama.cpp has a fixed set of parts. What none of them has is refused by its
name; nothing that changes the logits is left out without a word.
"""

import logging

from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, RopeScaling

log = logging.getLogger(__name__)

_NO_ROPE_STEP = 4
"""llama.cpp's smollm3 has no rotary positions in every fourth layer, whatever the file says."""


def architecture_of(config: GPTConfig) -> str:
    """Return llama.cpp's name for a network like this.

    Raises `CheckpointError` naming the part of `config` that llama.cpp does not have.
    """
    if config.rope_scaling is not None:
        _check_scaling(config.rope_scaling)
    by_parts = config.rope_scaling is not None and config.rope_scaling.rope_type == "llama3"
    biases = {
        "biases of queries, keys and values": config.qkv_bias,
        "a bias of attention's output": config.o_bias,
        "biases of the MLP": config.mlp_bias,
    }
    if not config.qk_norm and not config.no_rope_layers:
        narrow = config.n_head * config.head_size == config.n_embd
        only_qkv = config.qkv_bias and not (config.o_bias or config.mlp_bias)
        return "qwen2" if only_qkv and narrow and not by_parts else "llama"
    usual = tuple(range(_NO_ROPE_STEP - 1, config.n_layer, _NO_ROPE_STEP))
    if config.no_rope_layers not in ((), usual):
        layers = ", ".join(map(str, config.no_rope_layers))
        raise _missing(
            f"layers without rotary positions other than every {_NO_ROPE_STEP}th; got {layers} of "
            f"{config.n_layer} (counted from 0)"
        )
    architecture = "qwen3" if config.qk_norm else "smollm3"
    lacking = {
        **biases,
        "layers without rotary positions": config.qk_norm and bool(config.no_rope_layers),
        "rotary positions of the type llama3": by_parts,
    }
    for what, wanted in lacking.items():
        if wanted:
            raise _missing(f"{what} in its architecture {architecture}")
    return architecture


def model_metadata(config: GPTConfig, architecture: str) -> dict[str, int | float | str]:
    """Return key -> value of the network's sizes and settings.

    A sliding window, which llama.cpp does not have here, is a note.
    """
    settings: dict[str, int | float | str] = {
        "context_length": config.context,
        "embedding_length": config.n_embd,
        "block_count": config.n_layer,
        "feed_forward_length": config.mlp_size,
        "attention.head_count": config.n_head,
        "attention.head_count_kv": config.kv_heads,
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "vocab_size": config.vocab,
        "rope.dimension_count": config.head_size,
        "rope.freq_base": config.rope_theta,
    }
    window = config.sliding_window
    if window is not None and window < config.context:
        log.warning(
            "llama.cpp does not limit attention to the last %d tokens: its results are the same "
            "up to %d tokens",
            window,
            window,
        )
    if window is not None and config.sliding_layers is None:
        settings["attention.sliding_window"] = window
    if config.rope_scaling is not None:
        settings |= _stretching(config.rope_scaling)
    return {f"{architecture}.{name}": value for name, value in settings.items()}


def _stretching(scaling: RopeScaling) -> dict[str, int | float | str]:
    """Return the settings of rotary scaling. That of Llama 3 has none, but a tensor of its own."""
    if scaling.rope_type == "llama3":
        return {}
    settings: dict[str, int | float | str] = {
        "rope.scaling.type": scaling.rope_type,
        "rope.scaling.factor": scaling.factor,
    }
    if scaling.rope_type == "yarn":
        settings["rope.scaling.original_context_length"] = scaling.original
        if scaling.attention_factor is not None:
            # llama.cpp multiplies by the paper's formula in any case; this comes on top.
            usual = RopeScaling(
                rope_type="yarn",
                factor=scaling.factor,
                original_max_position_embeddings=scaling.original,
            ).query_scale
            settings["rope.scaling.attn_factor"] = scaling.attention_factor / usual
    return settings


def _check_scaling(scaling: RopeScaling) -> None:
    if scaling.rope_type == "dynamic":
        raise _missing("rotary positions of the type dynamic")
    # llama.cpp reads the borders of the ramp for other architectures only.
    if scaling.rope_type == "yarn" and (
        (scaling.beta_fast, scaling.beta_slow, scaling.truncate) != (32, 1, True)
    ):
        exact = "" if scaling.truncate else ", not rounded"
        raise _missing(
            "yarn with other borders than beta_fast 32 and beta_slow 1, rounded; got "
            f"{scaling.beta_fast:g} and {scaling.beta_slow:g}{exact}"
        )


def _missing(what: str) -> CheckpointError:
    return CheckpointError(f"llama.cpp does not have {what}; export to hf instead")
