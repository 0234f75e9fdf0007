"""Rotary settings of a config.json <-> base and `RopeScaling`.

transformers 5 writes one group, `rope_parameters`, with the base in it; older files, and mlx-lm,
have `rope_theta` and `rope_scaling`. Whichever is there is read, and both are written.
"""

import math
from typing import Any

from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, RopeScaling

_KEYS = {  # type -> keys of its own
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", "original_max_position_embeddings"),
    "llama3": (
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
    ),
    "yarn": (
        "factor",
        "original_max_position_embeddings",
        "attention_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "truncate",
        "finetuned",  # in the files of yarn's authors: says how they were made
    ),
}
_SHARED = ("rope_type", "type", "rope_theta", "partial_rotary_factor")


def read_rotary(
    values: ConfigValues, default_theta: float, context: int
) -> tuple[float, RopeScaling | None]:
    """Return the base and how positions are stretched.

    `context` is the model's `max_position_embeddings`, which is the original context where a file
    names no other. Raises `CheckpointError`, and `ConfigError` for numbers without meaning.
    """
    groups = [g for key in ("rope_parameters", "rope_scaling") if (g := values.group(key))]
    bases = [g.number("rope_theta") for g in groups if "rope_theta" in g.raw]
    scalings = [_scaling(g, context) for g in groups]
    for found in (bases, scalings):
        if len(found) == 2 and found[0] != found[1]:
            raise values.error("rope_parameters and rope_scaling contradict each other")
    scaling = scalings[0] if scalings else None
    outer = values.raw.get("original_max_position_embeddings")
    if (
        outer is not None
        and scaling is not None
        and outer != scaling.original_max_position_embeddings
    ):
        raise values.error(
            f"original_max_position_embeddings = {outer!r} stands outside the rotary settings and "
            "does not agree with them"
        )
    theta = bases[0] if bases else values.number("rope_theta", default_theta)
    if theta <= 1 and scaling is not None and scaling.rope_type == "yarn":
        raise values.error(f"rotary type 'yarn' needs a base above 1, got {theta}")
    return theta, scaling


def rotary_keys(config: GPTConfig) -> dict[str, Any]:
    """Return the keys of a config.json, old and new, for the rotary settings of `config`."""
    theta, scaling = config.rope_theta, config.rope_scaling
    if scaling is None:
        new = {"rope_theta": theta, "rope_type": "default"}
        return {"rope_theta": theta, "rope_parameters": new}
    group: dict[str, Any] = {"rope_type": scaling.rope_type, "factor": scaling.factor}
    original = scaling.original_max_position_embeddings
    if scaling.rope_type == "dynamic" and original != config.max_seq_len:
        raise CheckpointError(
            f"dynamic rotary positions start from the context of the model, {config.max_seq_len}, "
            f"in every file format; this model starts from {original}"
        )
    if scaling.rope_type == "llama3":
        group["low_freq_factor"] = scaling.low_freq_factor
        group["high_freq_factor"] = scaling.high_freq_factor
    if scaling.rope_type in ("llama3", "yarn"):
        group["original_max_position_embeddings"] = original
    if scaling.rope_type == "yarn":
        group["beta_fast"], group["beta_slow"] = scaling.beta_fast, scaling.beta_slow
        group |= _attention_factor_keys(scaling)
        if not scaling.truncate:
            group["truncate"] = False
    new = {"rope_theta": theta, **group}
    return {"rope_theta": theta, "rope_scaling": group, "rope_parameters": new}


def _attention_factor_keys(scaling: RopeScaling) -> dict[str, float]:
    """transformers reads `attention_factor`; mlx-lm comes to the same by way of `mscale`."""
    if scaling.attention_factor is None:
        return {}
    keys = {"attention_factor": float(scaling.attention_factor)}
    if scaling.factor > 1:
        keys["mscale"] = (scaling.attention_factor - 1) / (0.1 * math.log(scaling.factor))
        keys["mscale_all_dim"] = 0.0
    return keys


def _scaling(group: ConfigValues, context: int) -> RopeScaling | None:
    kind = _rope_type(group)
    if group.raw.get("partial_rotary_factor") not in (None, 1):
        raise group.error("rotation of a part of each head is not supported")
    known = (*_SHARED, *_KEYS[kind])
    other = sorted(k for k, value in group.raw.items() if k not in known and value is not None)
    if other:
        raise group.error(f"{other[0]!r} is not supported for rotary type '{kind}'")
    original = group.size("original_max_position_embeddings", context)
    if kind == "default":
        return None
    if kind == "linear":
        return RopeScaling(rope_type="linear", factor=group.number("factor"))
    if kind == "dynamic":
        if original != context:  # transformers and mlx-lm do not look at it
            raise group.error(
                f"'original_max_position_embeddings' is {original}, but dynamic positions start "
                f"from max_position_embeddings, {context}"
            )
        return RopeScaling(
            rope_type="dynamic",
            factor=group.number("factor"),
            original_max_position_embeddings=original,
        )
    if kind == "llama3":
        return RopeScaling(
            rope_type="llama3",
            factor=group.number("factor"),
            low_freq_factor=group.number("low_freq_factor"),
            high_freq_factor=group.number("high_freq_factor"),
            original_max_position_embeddings=original,
        )
    return _yarn(group, original, context)


def _rope_type(group: ConfigValues) -> str:
    named = [group.raw[key] for key in ("rope_type", "type") if key in group.raw]
    kind = named[0] if named else "default"
    if not isinstance(kind, str) or kind not in _KEYS or len({*map(str, named)}) > 1:
        shown = " and ".join(map(repr, named))
        raise group.error(f"rotary type {shown} is not supported; known: {', '.join(_KEYS)}")
    return kind


def _yarn(group: ConfigValues, original: int, context: int) -> RopeScaling:
    factor = group.number_or_none("factor")
    if factor is None:
        factor = context / original
    attention_factor = group.number_or_none("attention_factor")
    mscale, all_dim = group.number_or_none("mscale"), group.number_or_none("mscale_all_dim")
    if attention_factor is None and mscale and all_dim:
        grown = 0.1 * math.log(factor) if factor > 1 else 0.0
        attention_factor = (mscale * grown + 1) / (all_dim * grown + 1)
    return RopeScaling(
        rope_type="yarn",
        factor=factor,
        original_max_position_embeddings=original,
        beta_fast=group.number_or_none("beta_fast") or 32.0,
        beta_slow=group.number_or_none("beta_slow") or 1.0,
        attention_factor=attention_factor,
        truncate=group.flag("truncate", True),
    )
