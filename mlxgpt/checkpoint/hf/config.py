"""GPTConfig <-> a Llama's `config.json`; what this network cannot compute is refused by name."""

from typing import Any

from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.model import GPTConfig

_FULL = "full_attention"


def to_hf(config: GPTConfig, eos_token_id: int | None, dtype: str = "float32") -> dict[str, Any]:
    """Return a config.json that transformers and mlx-lm read as the same network.

    The rotary base is written twice, since transformers 5 reads `rope_parameters` and mlx-lm
    `rope_theta`; `tie_word_embeddings` always, since their defaults differ.
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": config.n_embd,
        "intermediate_size": config.mlp_size,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "rms_norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab,
        "max_position_embeddings": config.max_seq_len,
        "rope_theta": config.rope_theta,
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": eos_token_id,
        "eos_token_id": eos_token_id,
        "pad_token_id": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": dtype,
    }


def from_hf(raw: dict[str, Any], where: str) -> GPTConfig:
    """Return the `GPTConfig` of a config.json. `where` names the file in messages.

    Raises `CheckpointError` for another architecture, a feature that this network lacks, a missing
    or a contradictory size.
    """
    if raw.get("model_type") != "llama":
        raise CheckpointError(
            f"{where}: model_type {raw.get('model_type')!r} is not supported; known: 'llama'"
        )
    for key, fine in (
        ("hidden_act", ("silu", None)),
        ("attention_bias", (False, None)),
        ("mlp_bias", (False, None)),
        ("sliding_window", (None,)),
        ("rope_traditional", (False, None)),
        ("partial_rotary_factor", (1.0, None)),
        ("quantization", (None,)),
        ("quantization_config", (None,)),
    ):
        if raw.get(key) not in fine:
            raise CheckpointError(f"{where}: {key} = {raw[key]!r} is not supported")

    kinds = raw.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or {*map(str, kinds)} - {_FULL}):
        raise CheckpointError(f"{where}: layer_types = {kinds!r} is not supported")

    def optional_size(key: str) -> int | None:
        return None if raw.get(key) is None else size(key)

    def size(key: str) -> int:
        value = raw.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CheckpointError(f"{where}: '{key}' must be a whole number above 0, got {value!r}")
        return value

    def number(key: str, default: float) -> float:
        return _number(raw.get(key, default), key, where)

    # transformers leaves the key out where it has its default, which is untied for Llama
    tied = raw.get("tie_word_embeddings")
    if not isinstance(tied, bool | None):
        raise CheckpointError(f"{where}: 'tie_word_embeddings' must be true or false, got {tied!r}")
    try:
        return GPTConfig(
            n_layer=size("num_hidden_layers"),
            n_embd=size("hidden_size"),
            n_head=size("num_attention_heads"),
            n_kv_head=optional_size("num_key_value_heads"),
            head_dim=optional_size("head_dim"),
            intermediate_size=size("intermediate_size"),
            vocab_size=size("vocab_size"),
            max_seq_len=size("max_position_embeddings"),
            rope_theta=_rope_theta(raw, where),
            rms_norm_eps=number("rms_norm_eps", 1e-6),
            tie_embeddings=bool(tied),
        )
    except ConfigError as e:
        raise CheckpointError(f"{where}: {e}") from e


def _number(value: Any, key: str, where: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise CheckpointError(f"{where}: '{key}' must be a number, got {str(value)[:40]!r}")


def _rope_theta(raw: dict[str, Any], where: str) -> float:
    """Read the rotary base from the new key (`rope_parameters`) or the old ones."""
    base = raw.get("rope_theta", 10000.0)
    for key in ("rope_scaling", "rope_parameters"):  # the newer one has the last word
        group = raw.get(key)
        if group is None:
            continue
        if not isinstance(group, dict):
            raise CheckpointError(f"{where}: '{key}' must be an object, got {group!r}")
        kind = group.get("rope_type", group.get("type", "default"))
        if kind != "default":
            raise CheckpointError(
                f"{where}: rotary type {kind!r} is not supported; known: 'default'"
            )
        known = ("rope_type", "type", "rope_theta")
        other = sorted(k for k, v in group.items() if k not in known and v is not None)
        if other:
            raise CheckpointError(f"{where}: {key}.{other[0]} is not supported")
        base = group.get("rope_theta", base)
    return _number(base, "rope_theta", where)


def stop_ids(config: dict[str, Any], where: str) -> set[int]:
    """Return what `eos_token_id` names: an id, a list of ids, or (null, absent) none.

    Raises `CheckpointError` for anything else, since a text that never ends is hard to explain.
    """
    value = config.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    for one in ids:
        if not isinstance(one, int) or isinstance(one, bool):
            raise CheckpointError(
                f"{where}: 'eos_token_id' must be an id or a list of ids, got {value!r}"
            )
    return set(ids)
