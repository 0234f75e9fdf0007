"""config.json -> GPTConfig: what the file says or leaves out, by the rules of its family.

What this network cannot compute is refused by name. Code that a config names (`auto_map`,
`model_file`) is never run.
"""

from typing import Any

from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.checkpoint.hf.families import FAMILIES, Family
from mlxgpt.checkpoint.hf.foreign_keys import refuse_foreign
from mlxgpt.checkpoint.hf.rotary_settings import read_rotary
from mlxgpt.errors import CheckpointError, ConfigError, one_line
from mlxgpt.model import GPTConfig

_FULL, _SLIDING = "full_attention", "sliding_attention"
_MOST_LAYERS = 1 << 16


def from_hf(raw: dict[str, Any], where: str) -> GPTConfig:
    """Return the `GPTConfig` of a config.json. `where` names the file in messages.

    Raises `ForeignArchitecture` for a family that is not ours, and `CheckpointError` for a feature
    that this network lacks, a missing or a contradictory value.
    """
    values = ConfigValues(raw, where)
    family = _family(values)
    refuse_foreign(values)
    n_layer = values.size("num_hidden_layers")
    if n_layer > _MOST_LAYERS:  # some families make lists of their layers
        raise values.error(f"'num_hidden_layers' must be at most {_MOST_LAYERS}, got {n_layer}")
    attention_bias = values.flag("attention_bias", False)
    mlp_bias = values.flag("mlp_bias", False)
    if family.qkv_bias:  # whatever the key says, the output of attention has none
        attention_bias = False
    for key, wanted in (("attention_bias", attention_bias), ("mlp_bias", mlp_bias)):
        if wanted and key not in family.bias_keys:
            raise values.error(f"{key} = True is not supported for model_type '{family.name}'")
    no_rope = _no_rope_layers(values, family, n_layer)
    window, sliding = _windows(values, family, n_layer, no_rope)
    context = values.size("max_position_embeddings", family.context)
    try:
        theta, scaling = read_rotary(values, family.theta, context)
        return GPTConfig(
            n_layer=n_layer,
            n_embd=values.size("hidden_size"),
            n_head=values.size("num_attention_heads"),
            n_kv_head=values.size_or_none("num_key_value_heads", family.kv_heads),
            head_dim=values.size_or_none("head_dim", family.head_dim),
            intermediate_size=values.size("intermediate_size"),
            vocab_size=values.size("vocab_size"),
            max_seq_len=context,
            rope_theta=theta,
            rope_scaling=scaling,
            no_rope_layers=no_rope,
            rms_norm_eps=values.number("rms_norm_eps", 1e-6),
            tie_embeddings=values.flag("tie_word_embeddings", family.tied),
            sliding_window=window,
            sliding_layers=sliding,
            qkv_bias=family.qkv_bias or attention_bias,
            o_bias=attention_bias,
            mlp_bias=mlp_bias,
            qk_norm=family.qk_norm,
        )
    except ConfigError as e:
        raise values.error(str(e)) from e


def stop_ids(config: dict[str, Any], where: str) -> set[int]:
    """Return what `eos_token_id` names: an id, a list of ids, or (null, absent) none.

    Raises `CheckpointError` for anything else, since a text that never ends is hard to explain.
    """
    value = config.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for one in ids:
        if not isinstance(one, int) or isinstance(one, bool):
            message = f"{where}: 'eos_token_id' must be an id or a list of ids, got {value!r}"
            raise CheckpointError(one_line(message))
    return set(ids)


def _family(values: ConfigValues) -> Family:
    name = values.raw.get("model_type")
    if not isinstance(name, str):
        raise values.error(f"'model_type' must name an architecture, got {name!r}")
    if name not in FAMILIES:
        raise ForeignArchitecture(
            f"{values.where}: model_type {one_line(repr(name), 80)} is not an architecture of this "
            f"network; those are {', '.join(FAMILIES)}",
            name,
        )
    return FAMILIES[name]


def _no_rope_layers(values: ConfigValues, family: Family, n_layer: int) -> tuple[int, ...]:
    """Return the layers without rotary positions: a 0 in a list, or every so many."""
    given = values.raw.get("no_rope_layers")
    if not family.no_rope:
        if given not in (None, []) and (not isinstance(given, list) or not all(given)):
            raise values.error(
                f"no_rope_layers = {given!r} is not supported for model_type '{family.name}'"
            )
        return ()
    if given is None:
        interval = values.size("no_rope_layer_interval", 4)
        return tuple(range(interval - 1, n_layer, interval))
    if not isinstance(given, list) or any(one not in (0, 1) for one in given):
        raise values.error(
            f"'no_rope_layers' must be a list of 1 (rotary) and 0 (none), got {given!r}"
        )
    if len(given) < n_layer:
        raise values.error(f"'no_rope_layers' has {len(given)} entries for {n_layer} layers")
    return tuple(i for i in range(n_layer) if not given[i])


def _windows(
    values: ConfigValues, family: Family, n_layer: int, no_rope: tuple[int, ...]
) -> tuple[int | None, tuple[int, ...] | None]:
    """Return `sliding_window` and `sliding_layers`.

    Where transformers and mlx-lm would take a file in two ways, it is refused.
    """
    kinds = _layer_types(values, n_layer)
    window = values.size_or_none("sliding_window", family.window)
    switch = values.raw.get("use_sliding_window")
    on = values.flag("use_sliding_window", family.windows == "every layer")
    if kinds is not None:
        sliding = tuple(i for i, kind in enumerate(kinds) if kind == _SLIDING)
    elif family.windows == "none" or not on or window is None:
        sliding = ()
    elif family.windows == "every layer":
        sliding = tuple(range(n_layer))
    elif family.no_rope:
        sliding = no_rope
    else:
        first = values.size("max_window_layers", 28, least=0)
        sliding = tuple(range(min(first, n_layer), n_layer))

    if family.windows == "none":
        if sliding or (window is not None and kinds is None and switch is not False):
            key = "layer_types" if sliding else "sliding_window"
            raise values.error(
                f"{key} = {values.raw[key]!r} is not supported for model_type '{family.name}'"
            )
        return None, None
    if sliding and (window is None or not on):
        key = "sliding_window" if window is None else "use_sliding_window"
        raise values.error(f"layer_types has sliding layers, but {key} is {values.raw.get(key)!r}")
    if family.windows == "every layer" and window is not None and len(sliding) < n_layer:
        key = "use_sliding_window" if kinds is None else "layer_types"
        raise values.error(
            f"{key} = {values.raw[key]!r} does not go with sliding_window = {window} for "
            f"model_type '{family.name}', where every layer has it"
        )
    return (window, sliding) if sliding else (None, None)


def _layer_types(values: ConfigValues, n_layer: int) -> list[str] | None:
    kinds = values.raw.get("layer_types")
    if kinds is None:
        return None
    if not isinstance(kinds, list) or any(kind not in (_FULL, _SLIDING) for kind in kinds):
        raise values.error(f"layer_types = {kinds!r} is not supported")
    if len(kinds) != n_layer:
        raise values.error(f"'layer_types' has {len(kinds)} entries for {n_layer} layers")
    return kinds
