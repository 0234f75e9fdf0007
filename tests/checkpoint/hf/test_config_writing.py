"""GPTConfig -> a config.json of the family that has its features."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint.hf.config_reading import from_hf
from mlxgpt.checkpoint.hf.config_writing import to_hf
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, RopeScaling


def written(config: GPTConfig, **more: Any) -> dict[str, Any]:
    raw = to_hf(config, **{"bos_token_id": 1, "eos_token_ids": 2} | more)
    return json.loads(json.dumps(raw))


def config(**fields: Any) -> GPTConfig:
    return GPTConfig(**{"vocab_size": 300, "n_kv_head": 2} | fields)


def test_a_plain_model_is_a_llama() -> None:
    assert written(config(rope_theta=5e5, tie_embeddings=False)) == {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rms_norm_eps": 1e-5,
        "vocab_size": 300,
        "max_position_embeddings": 128,
        "rope_theta": 5e5,
        "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"},
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "use_cache": True,
        "torch_dtype": "float32",
    }


ALL_BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama", {}),
        ("llama", ALL_BIASES),
        ("mistral", {"sliding_window": 9}),
        ("mistral", {"n_embd": 130, "head_dim": 32}),  # which transformers' Llama does not open
        ("qwen2", {"qkv_bias": True}),
        ("qwen2", {"qkv_bias": True, "sliding_window": 9}),
        ("qwen2", {"qkv_bias": True, "sliding_window": 9, "sliding_layers": (0, 3)}),
        ("qwen3", {"qk_norm": True}),
        ("qwen3", {"qk_norm": True, "qkv_bias": True, "o_bias": True, "sliding_window": 9}),
        ("smollm3", {"no_rope_layers": (3,)}),
        ("smollm3", {"sliding_window": 9, "sliding_layers": (1, 2), **ALL_BIASES}),
        ("smollm3", {"sliding_window": 9, "no_rope_layers": (0, 1, 2, 3), "n_embd": 130,
                     "head_dim": 32}),
    ],
    ids=str,
)  # fmt: skip
def test_the_family_is_the_first_that_has_the_features(family: str, fields: dict[str, Any]) -> None:
    raw = written(config(**fields))
    assert raw["model_type"] == family
    assert from_hf(raw, "x") == config(**fields)


def test_layers_that_slide_at_the_end_are_said_in_the_older_way_too() -> None:
    end = config(qkv_bias=True, sliding_window=9, sliding_layers=(2, 3))
    raw = written(end)
    assert raw["max_window_layers"] == 2
    del raw["layer_types"]
    assert from_hf(raw, "x") == end
    middle = config(qkv_bias=True, sliding_window=9, sliding_layers=(1, 3))
    assert written(middle)["max_window_layers"] == 4


@pytest.mark.parametrize(
    ("fields", "one", "two"),
    [
        ({"qk_norm": True, "no_rope_layers": (1,)}, "qk_norm", "no_rope_layers"),
        ({"qk_norm": True, "mlp_bias": True, "sliding_window": 5}, "mlp_bias", "qk_norm"),
        ({"qk_norm": True, "qkv_bias": True}, "qkv_bias without o_bias", "qk_norm"),
        ({"qkv_bias": True, "mlp_bias": True}, "qkv_bias without o_bias", "mlp_bias"),
        ({"qkv_bias": True, "no_rope_layers": (1,)}, "qkv_bias without o_bias", "no_rope_layers"),
        ({"o_bias": True}, "o_bias", "without qkv_bias"),
    ],
)
def test_what_no_family_has_together_is_refused_by_name(
    fields: dict[str, Any], one: str, two: str
) -> None:
    with pytest.raises(CheckpointError, match="no family") as caught:
        written(config(**fields))
    assert one in str(caught.value)
    assert two in str(caught.value)


@pytest.mark.parametrize(
    ("eos", "expected"), [(2, 2), ([2], 2), ([2, 7], [2, 7]), ([], None), (None, None), (0, 0)]
)
def test_stop_ids_are_written_as_one_or_many(eos: Any, expected: Any) -> None:
    raw = written(config(), bos_token_id=None, eos_token_ids=eos, pad_token_id=9, dtype="bfloat16")
    assert raw["eos_token_id"] == expected
    assert (raw["bos_token_id"], raw["pad_token_id"]) == (None, 9)
    assert raw["torch_dtype"] == "bfloat16"


layers = st.sets(st.integers(0, 3)).map(tuple)
factors, originals = st.floats(1, 100), st.integers(1, 99)
scalings = st.one_of(
    st.none(),
    st.builds(RopeScaling, rope_type=st.just("linear"), factor=factors),
    st.builds(
        RopeScaling,
        rope_type=st.just("llama3"),
        factor=factors,
        original_max_position_embeddings=originals,
        low_freq_factor=st.floats(0.5, 2),
    ),
    st.builds(
        RopeScaling,
        rope_type=st.just("yarn"),
        factor=factors,
        original_max_position_embeddings=originals,
        attention_factor=st.none() | st.floats(0.5, 2),
        beta_slow=st.floats(0.5, 2),
        truncate=st.booleans(),
    ),
)
FIELDS = {"qkv_bias": st.booleans(), "o_bias": st.booleans(), "mlp_bias": st.booleans()}
FIELDS |= {"qk_norm": st.booleans(), "no_rope_layers": layers, "tie_embeddings": st.booleans()}
FIELDS |= {"n_embd": st.sampled_from([128, 130]), "rope_scaling": scalings}


@given(st.fixed_dictionaries(FIELDS), st.none() | st.tuples(st.integers(1, 50), st.none() | layers))
def test_every_config_comes_back_or_is_refused(
    fields: dict[str, Any], window: tuple[int, tuple[int, ...] | None] | None
) -> None:
    slides = {} if window is None else {"sliding_window": window[0], "sliding_layers": window[1]}
    one = config(**fields, **slides, head_dim=32)
    try:
        raw = written(one)
    except CheckpointError:
        two_kinds = one.qk_norm + (one.qkv_bias != one.o_bias) + bool(one.no_rope_layers)
        assert two_kinds > 1 or one.mlp_bias or one.o_bias
    else:
        assert from_hf(raw, "x") == one
