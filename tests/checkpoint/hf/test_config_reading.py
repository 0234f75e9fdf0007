"""config.json -> GPTConfig: what a file says or leaves out, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.checkpoint.hf.config_reading import from_hf, stop_ids
from mlxgpt.checkpoint.hf.config_writing import to_hf
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig

CONFIG = GPTConfig(
    n_layer=3, n_embd=45, n_head=9, n_kv_head=3, head_dim=14, intermediate_size=50, vocab_size=77,
    max_seq_len=33, rope_theta=5e5, rms_norm_eps=1e-6, tie_embeddings=False,
)  # fmt: skip
GOOD = to_hf(CONFIG, bos_token_id=5, eos_token_ids=5)
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
FULL = ["full_attention"] * 3


def without(*keys: str, **more: Any) -> dict[str, Any]:
    return {k: v for k, v in GOOD.items() if k not in keys} | more


def read(family: str = "llama", *keys: str, **more: Any) -> GPTConfig:
    return from_hf(without(*keys, model_type=family, **more), "x")


def test_what_is_left_out_has_the_default_of_transformers() -> None:
    config = read("llama", "tie_word_embeddings", "num_key_value_heads", "head_dim", hidden_size=36)
    assert (config.tie_embeddings, config.kv_heads, config.head_size) == (False, 9, 4)
    assert read("llama", head_dim=None, hidden_size=36).head_size == 4
    assert read("qwen3", "head_dim").head_size == 128
    assert read("llama", num_key_value_heads=None).kv_heads == 9
    assert read("smollm3", "num_key_value_heads", num_attention_heads=8).kv_heads == 4
    assert read("smollm3", "tie_word_embeddings").tie_embeddings
    assert read("llama", "max_position_embeddings").max_seq_len == 2048
    assert read("qwen2", "max_position_embeddings").max_seq_len == 32768
    assert read("llama", "rms_norm_eps").rms_norm_eps == 1e-6
    for family, theta in (("smollm3", 2e6), ("qwen2", 1e4), ("llama", 1e4)):
        assert read(family, "rope_theta", "rope_parameters").rope_theta == theta


def test_biases_and_norms_are_those_of_the_family() -> None:
    def parts(family: str, **more: Any) -> str:
        c = read(family, "attention_bias", "mlp_bias", **more)
        found = {"qkv": c.qkv_bias, "o": c.o_bias, "mlp": c.mlp_bias, "norm": c.qk_norm}
        return " ".join(name for name, there in found.items() if there)

    assert parts("llama") == parts("mistral") == parts("smollm3") == ""
    assert parts("llama", attention_bias=True) == parts("smollm3", attention_bias=True) == "qkv o"
    assert parts("llama", mlp_bias=True) == "mlp"
    assert parts("qwen2") == parts("qwen2", attention_bias=True) == "qkv"
    assert parts("qwen2", attention_bias=False) == "qkv"
    assert parts("qwen3") == "norm"
    assert parts("qwen3", attention_bias=True) == "qkv o norm"


@pytest.mark.parametrize(
    ("family", "more", "expected"),
    [
        ("llama", {}, (None, None)),
        ("llama", {"sliding_window": 5, "layer_types": FULL}, (None, None)),
        ("llama", {"sliding_window": 5, "use_sliding_window": False}, (None, None)),
        ("mistral", {}, (4096, None)),
        ("mistral", {"sliding_window": None}, (None, None)),
        ("mistral", {"sliding_window": 5}, (5, None)),
        ("mistral", {"sliding_window": 5, "layer_types": ["sliding_attention"] * 3}, (5, None)),
        ("mistral", {"sliding_window": None, "layer_types": FULL}, (None, None)),
        ("qwen2", {}, (None, None)),
        ("qwen2", {"sliding_window": 5}, (None, None)),
        ("qwen2", {"use_sliding_window": True, "max_window_layers": 1}, (4096, (1, 2))),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 5}, (None, None)),  # from layer 28
        ("qwen3", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
         (5, None)),
        ("qwen3", {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0},
         (None, None)),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED},
         (5, (0, 2))),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "layer_types": FULL,
                   "max_window_layers": 0}, (None, None)),
        ("smollm3", {"sliding_window": 5}, (None, None)),
        ("smollm3", {"use_sliding_window": True}, (None, None)),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 5, "no_rope_layer_interval": 2},
         (5, (1,))),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 5, "layer_types": MIXED},
         (5, (0, 2))),
    ],
    ids=str,
)  # fmt: skip
def test_windows(family: str, more: dict[str, Any], expected: tuple) -> None:
    config = read(family, **more)
    assert (config.sliding_window, config.sliding_layers) == expected


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        ({"num_hidden_layers": 9}, (3, 7)),
        ({"no_rope_layer_interval": 1}, (0, 1, 2)),
        ({"no_rope_layer_interval": 5}, ()),
        ({"no_rope_layers": [1, 0, 1]}, (1,)),
        ({"no_rope_layers": [0, 1, 0, 0]}, (0, 2)),  # of a model with more layers once
        ({"no_rope_layers": [True, False, True], "no_rope_layer_interval": 1}, (1,)),
        ({"no_rope_layers": None, "no_rope_layer_interval": 2}, (1,)),
    ],
    ids=str,
)
def test_layers_without_rotary_have_a_zero(more: dict[str, Any], layers: tuple) -> None:
    assert read("smollm3", **more).no_rope_layers == layers


@pytest.mark.parametrize(
    ("raw", "part"),
    [
        (without("model_type"), "'model_type'"),
        (without(model_type=["llama"]), "model_type"),
        (without(hidden_act="gelu"), "hidden_act = 'gelu'"),
        (without(model_type="mistral", attention_bias=True), "attention_bias"),
        (without(model_type="qwen2", mlp_bias=True), "mlp_bias"),
        (without(attention_bias="yes"), "attention_bias"),
        (without(sliding_window=4096), "sliding_window = 4096"),
        (without(sliding_window=5, layer_types=MIXED), "layer_types"),
        (without(model_type="mistral", sliding_window=5, layer_types=MIXED), "layer_types"),
        (without(model_type="mistral", sliding_window=5, layer_types=FULL), "layer_types"),
        (without(model_type="mistral", use_sliding_window=False), "use_sliding_window"),
        (without(model_type="mistral", sliding_window=0), "sliding_window"),
        (without(model_type="qwen2", layer_types=MIXED), "use_sliding_window"),
        (without(model_type="qwen2", use_sliding_window=True, sliding_window=None,
                 layer_types=MIXED), "sliding_window is None"),
        (without(model_type="qwen2", use_sliding_window=True, max_window_layers=-1),
         "max_window_layers"),
        (without(model_type="smollm3", sliding_window=5, layer_types=MIXED), "use_sliding_window"),
        (without(model_type="smollm3", no_rope_layers=[1, 0]), "no_rope_layers"),
        (without(model_type="smollm3", no_rope_layers=[1, 0, 2]), "no_rope_layers"),
        (without(model_type="smollm3", no_rope_layers=[]), "no_rope_layers"),
        (without(model_type="smollm3", no_rope_layer_interval=0), "no_rope_layer_interval"),
        (without(no_rope_layers=[1, 1, 0]), "no_rope_layers"),
        (without(layer_types="full_attention"), "layer_types"),
        (without(layer_types=["full_attention"]), "1 entries for 3 layers"),
        (without(layer_types=["full_attention", "chunked_attention", "full_attention"]),
         "chunked_attention"),
        (without(rope_traditional=True), "rope_traditional"),
        (without(partial_rotary_factor=0.5), "partial_rotary_factor"),
        (without(final_logit_softcapping=30.0), "final_logit_softcapping = 30.0"),
        (without(logits_scaling=8.0), "logits_scaling"),
        (without(logit_scale=0.0625), "logit_scale"),
        (without(attention_chunk_size=8192), "attention_chunk_size"),
        (without(num_local_experts=8), "num_local_experts"),
        (without(vision_config={"a": 1}), "vision_config"),
        (without("hidden_size"), "hidden_size"),
        (without(num_key_value_heads=0), "num_key_value_heads"),
        (without(num_key_value_heads=4), "n_kv_head"),
        (without(head_dim=0), "head_dim"),
        (without(head_dim=7), "head_dim"),
        (without("head_dim", hidden_size=40), "n_embd"),
        (without(vocab_size=2**31), "vocab_size"),
        (without(tie_word_embeddings="false"), "tie_word_embeddings"),
        (without(tie_word_embeddings=0), "tie_word_embeddings"),
        (without(rms_norm_eps=None), "rms_norm_eps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_this_network_cannot_compute_is_refused_by_name(raw: dict, part: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        from_hf(raw, "x/config.json")
    assert part in str(caught.value)
    assert str(caught.value).startswith("x/config.json: ")
    assert "\n" not in str(caught.value)


def test_another_architecture_is_told_apart_from_a_damaged_file() -> None:
    with pytest.raises(ForeignArchitecture, match=r"'qwen3_next'.*llama, mistral") as caught:
        from_hf({"model_type": "qwen3_next"}, "x")
    assert caught.value.model_type == "qwen3_next"


def test_what_cannot_change_a_logit_passes() -> None:
    harmless = {
        "transformers_version": "4.9", "use_cache": False, "pretraining_tp": 2, "a_tool": {"b": 1},
        "_name_or_path": "/etc/passwd", "auto_map": {"AutoModelForCausalLM": "evil.Model"},
        "model_file": "evil.py", "attention_dropout": 0.5, "torch_dtype": "float16",
        "hidden_act": "swish", "logit_scale": 1.0, "num_experts": 0, "partial_rotary_factor": 1.0,
        "architectures": ["SomethingElse"], "final_logit_softcapping": None,
    }  # fmt: skip
    assert from_hf(GOOD | harmless, "x") == CONFIG


ODD: list[Any] = [None, "", "x", [], {}, [1], {"a": 1}, True, False, 0, -1, 3, 10**30, -0.5, 1.5]
ODD += [float("inf"), float("nan"), 10**400, "9" * 5000, "llama", "qwen3", "smollm3", MIXED]
ODD += [{"rope_type": "default"}, {"rope_theta": -1}, {"rope_type": "yarn", "factor": 2}]
MORE = ("sliding_window", "use_sliding_window", "layer_types", "no_rope_layers", "rope_scaling")
KEYS = st.sampled_from(sorted(GOOD) + list(MORE))
FAMILIES = st.sampled_from(["llama", "mistral", "qwen2", "qwen3", "smollm3"])


@given(FAMILIES, KEYS, st.sampled_from(ODD), KEYS, st.sampled_from(ODD))
def test_odd_values_are_refused_or_make_a_sound_config(
    family: str, one: str, a: object, two: str, b: object
) -> None:
    try:
        outcome = from_hf({**GOOD, "model_type": family, one: a, two: b}, "x")
    except CheckpointError as e:
        outcome = str(e)
    if isinstance(outcome, str):
        assert "\n" not in outcome
    else:
        raw = json.loads(json.dumps(to_hf(outcome, bos_token_id=None, eos_token_ids=None)))
        assert from_hf(raw, "x") == outcome


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
