"""Named shapes: a preset fills fields of `GPTConfig`, and each stays overridable."""

from typing import Any

from mlxgpt.errors import ConfigError, did_you_mean

PRESETS: dict[str, dict[str, Any]] = {
    "0.8m": {"n_layer": 4, "n_embd": 128, "n_head": 4, "max_seq_len": 128},
    "3m": {"n_layer": 6, "n_embd": 192, "n_head": 6, "max_seq_len": 256},
    "10m": {"n_layer": 6, "n_embd": 384, "n_head": 6, "max_seq_len": 256},
    "23m": {"n_layer": 8, "n_embd": 512, "n_head": 8, "n_kv_head": 4, "max_seq_len": 512},
    "75m": {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_kv_head": 4, "max_seq_len": 1024},
    "270m": {"n_layer": 24, "n_embd": 1024, "n_head": 16, "n_kv_head": 4, "max_seq_len": 1024},
    "1b": {"n_layer": 22, "n_embd": 2048, "n_head": 32, "n_kv_head": 4, "max_seq_len": 2048},
}
"""Named by the parameters outside the embedding; `docs/model.md` has the exact counts."""


def preset(name: str) -> dict[str, Any]:
    """Return the fields that preset `name` sets. Raises `ConfigError` for an unknown name.

    Sizes that follow from these are set to None, so that a preset replaces a whole shape and does
    not inherit the head size of another.
    """
    if name not in PRESETS:
        raise ConfigError(f"unknown preset '{name}'{did_you_mean(name, PRESETS)}")
    derived = dict.fromkeys(("n_kv_head", "head_dim", "intermediate_size"))
    return {**derived, **PRESETS[name]}
