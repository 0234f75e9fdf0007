import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint.hf.config import from_hf, stop_ids, to_hf
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig

CONFIG = GPTConfig(
    n_layer=3, n_embd=40, n_head=9, n_kv_head=3, head_dim=14, intermediate_size=50, vocab_size=77,
    max_seq_len=33, rope_theta=5e5, rms_norm_eps=1e-6, tie_embeddings=False,
)  # fmt: skip
GOOD = to_hf(CONFIG, eos_token_id=5)


@pytest.mark.parametrize("tied", [True, False])
def test_there_and_back(tied: bool) -> None:
    config = GPTConfig(vocab_size=300, n_kv_head=2, tie_embeddings=tied)
    for one in (config, CONFIG):
        raw = json.loads(json.dumps(to_hf(one, None)))
        assert from_hf(raw, "x") == one
        assert raw["tie_word_embeddings"] == one.tie_embeddings
        assert raw["rope_theta"] == raw["rope_parameters"]["rope_theta"] == one.rope_theta


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {k: v for k, v in GOOD.items() if k not in keys} | more


@pytest.mark.parametrize(
    ("raw", "theta"),
    [
        (without("rope_theta"), 5e5),
        (without("rope_parameters"), 5e5),
        (without("rope_theta", "rope_parameters"), 10000.0),
        (without("rope_theta", rope_parameters={"rope_theta": 7.0}), 7.0),
        (without("rope_parameters", rope_theta=7), 7.0),
        (without(rope_parameters={"rope_theta": 9.0, "rope_type": "default"}), 9.0),
        (without("rope_parameters", rope_scaling=None), 5e5),
        (without(rope_parameters=None, rope_scaling={"type": "default"}), 5e5),
        (without("rope_parameters", rope_scaling={"rope_type": "default", "factor": None}), 5e5),
    ],
)
def test_the_rotary_base_stands_in_the_new_place_or_the_old(raw: dict, theta: float) -> None:
    assert from_hf(raw, "x").rope_theta == theta


def test_what_is_left_out_has_the_default_of_transformers() -> None:
    raw = without("tie_word_embeddings", "num_key_value_heads", "head_dim", hidden_size=36)
    config = from_hf(raw, "x")
    assert (config.tie_embeddings, config.kv_heads, config.head_size) == (False, 9, 4)
    assert from_hf(without(head_dim=None, hidden_size=36), "x").head_size == 4


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (without("rope_parameters", rope_scaling={"rope_type": "llama3", **LLAMA3}), "'llama3'"),
        (without("rope_parameters", rope_scaling={"type": "linear", "factor": 2}), "'linear'"),
        (without(rope_parameters={"rope_type": "yarn", "rope_theta": 1e4}), "'yarn'"),
        (without(rope_parameters={"rope_type": None}), "None"),
        (without(rope_parameters={"rope_theta": 1e4, "factor": 8.0}), "factor"),
        (without(rope_parameters={"full_attention": {"rope_theta": 1e4}}), "full_attention"),
        (without(rope_parameters=[]), "rope_parameters"),
        (without(rope_scaling=0), "rope_scaling"),
        (without(rope_parameters={"rope_theta": "1e4"}), "rope_theta"),
        (without(rope_parameters={"rope_theta": None}), "rope_theta"),
        (without(model_type="qwen3_next"), "'qwen3_next'"),
        (without("model_type"), "None"),
        (without(model_type=["llama"]), "model_type"),
        (without(hidden_act="gelu"), "'gelu'"),
        (without(attention_bias=True), "attention_bias"),
        (without(mlp_bias=True), "mlp_bias"),
        (without(sliding_window=4096), "sliding_window"),
        (without(layer_types=["full_attention", "sliding_attention"]), "layer_types"),
        (without(layer_types="full_attention"), "layer_types"),
        (without(rope_traditional=True), "rope_traditional"),
        (without(partial_rotary_factor=0.5), "partial_rotary_factor"),
        (without(quantization={"group_size": 64, "bits": 4}), "quantization"),
        (without(quantization_config={}), "quantization_config"),
        (without("hidden_size"), "hidden_size"),
        (without(num_key_value_heads=0), "num_key_value_heads"),
        (without(num_key_value_heads=4), "n_kv_head"),
        (without(head_dim=0), "head_dim"),
        (without(head_dim=7), "head_dim"),
        (without("head_dim"), "n_embd"),
        (without(vocab_size=2**31), "vocab_size"),
        (without(tie_word_embeddings="false"), "tie_word_embeddings"),
        (without(tie_word_embeddings=0), "tie_word_embeddings"),
        (without(rms_norm_eps=None), "rms_norm_eps"),
        (without("rope_parameters", rope_theta=10**400), "rope_theta"),
        (without("rope_parameters", rope_theta=float("inf")), "rope_theta"),
    ],
)
def test_what_this_network_cannot_compute_is_refused_by_name(raw: dict, part: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        from_hf(raw, "x/config.json")
    assert part in str(caught.value)
    assert str(caught.value).startswith("x/config.json: ")


ODD: list[Any] = [None, "", "x", [], {}, [1], {"a": 1}, True, False, 0, -1, 3, 10**30, -0.5, 1.5]
ODD += [float("inf"), float("nan"), 10**400, "9" * 5000, "llama"]
ODD += [{"rope_type": "default"}, {"rope_theta": -1}]
KEYS = st.sampled_from(sorted(GOOD))


@given(KEYS, st.sampled_from(ODD), KEYS, st.sampled_from(ODD))
def test_odd_values_are_refused_or_make_a_sound_config(
    one: str, a: object, two: str, b: object
) -> None:
    try:
        outcome = from_hf({**GOOD, one: a, two: b}, "x")
    except CheckpointError as e:
        outcome = str(e)
    if isinstance(outcome, str):
        assert "\n" not in outcome
    else:
        assert from_hf(to_hf(outcome, None), "x") == outcome


@pytest.mark.parametrize(
    ("value", "ids"), [(1, {1}), ([1, 6], {1, 6}), ([], set()), (None, set()), (0, {0})]
)
def test_stop_ids_are_one_or_many_or_none(value: object, ids: set[int]) -> None:
    assert stop_ids({"eos_token_id": value}, "x") == ids
    assert stop_ids({}, "x") == set()


@pytest.mark.parametrize("value", ["2", 2.0, True, [1, None], {"a": 1}, [[1]]])
def test_a_stop_id_without_meaning_is_refused(value: object) -> None:
    with pytest.raises(CheckpointError, match="eos_token_id"):
        stop_ids({"eos_token_id": value}, "x")
