"""Rotary settings in old and new keys -> base and stretching, and back."""

from typing import Any

import numpy as np
import pytest

from mlxgpt.checkpoint.hf.config_values import ConfigValues
from mlxgpt.checkpoint.hf.rotary_settings import read_rotary, rotary_keys
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.model import GPTConfig, RopeScaling
from mlxgpt.model.rope_scaling import frequencies

LLAMA3: dict[str, Any] = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 64}
YARN: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16}


def read(raw: dict[str, Any], theta: float = 10000.0, context: int = 64) -> Any:
    return read_rotary(ConfigValues(raw, "x"), theta, context)


@pytest.mark.parametrize(
    ("raw", "theta"),
    [
        ({"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, 5e5),
        ({"rope_theta": 5e5}, 5e5),
        ({}, 10000.0),
        ({"rope_parameters": {"rope_theta": 7.0}}, 7.0),
        ({"rope_theta": 7}, 7.0),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}, 9.0),
        ({"rope_theta": 5e5, "rope_scaling": None, "rope_parameters": None}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"type": "default"}}, 5e5),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "default", "factor": None}}, 5e5),
        ({"rope_scaling": {"type": "default", "rope_theta": 3.0}}, 3.0),
        ({"rope_theta": 5e5, "rope_scaling": {}, "rope_parameters": {}}, 5e5),
    ],
)
def test_the_base_stands_in_the_new_place_or_the_old(raw: dict[str, Any], theta: float) -> None:
    assert read(raw) == (theta, None)


def test_an_absent_base_is_that_of_the_family() -> None:
    assert read({}, 2e6) == (2e6, None)
    assert read({"rope_scaling": {"type": "linear", "factor": 2}}, 2e6)[0] == 2e6


@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
@pytest.mark.parametrize("kind", ["rope_type", "type"])
def test_every_type_is_read_from_either_place(key: str, kind: str) -> None:
    def scaling(name: str, **fields: Any) -> RopeScaling | None:
        return read({key: {kind: name, **fields}})[1]

    assert scaling("default") is None
    assert scaling("linear", factor=2) == RopeScaling(rope_type="linear", factor=2.0)
    dynamic = RopeScaling(rope_type="dynamic", factor=2.0, original_max_position_embeddings=64)
    assert scaling("dynamic", factor=2) == dynamic
    assert scaling("dynamic", factor=2, original_max_position_embeddings=64) == dynamic
    llama3 = RopeScaling(rope_type="llama3", **LLAMA3)
    assert scaling("llama3", **LLAMA3) == llama3
    yarn = RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
    assert scaling("yarn", factor=4, original_max_position_embeddings=16) == yarn
    assert scaling("yarn", factor=None, original_max_position_embeddings=16) == yarn
    assert scaling("yarn", factor=4, original_max_position_embeddings=16, finetuned=True) == yarn
    late = scaling("yarn", factor=4.0)
    assert late is not None
    assert late.original == 64


def test_frequencies_of_llama3_are_the_known_ones() -> None:
    theta, scaling = read({"rope_theta": 1e4, "rope_scaling": {"type": "llama3", **LLAMA3}})
    known = [1, 0.2443846, 0.01304226, 0.00395285, 0.00125, 0.00039528, 0.000125, 0.0000395]
    found = frequencies(16, theta, scaling)
    np.testing.assert_allclose(found, known, rtol=1e-3)  # of the last one three digits are known
    np.testing.assert_allclose(found[:7], known[:7], rtol=2e-5)


def test_the_sharpness_of_yarn_is_one_number() -> None:
    def factor(**fields: Any) -> float:
        scaling = read({"rope_scaling": YARN | fields})[1]
        assert scaling is not None
        return scaling.query_scale

    log = np.log(4.0)
    assert factor() == pytest.approx(0.1 * log + 1)
    assert factor(mscale=2.0) == factor(mscale_all_dim=2.0) == factor(mscale=0, mscale_all_dim=1)
    assert factor(mscale=2.0) == factor()
    both = (0.1 * 2 * log + 1) / (0.1 * 0.5 * log + 1)
    assert factor(mscale=2.0, mscale_all_dim=0.5) == pytest.approx(both)
    assert factor(mscale=2.0, mscale_all_dim=0.5, attention_factor=1.5) == 1.5
    assert factor(factor=1.0) == 1.0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "'longrope'"),
    ({"rope_scaling": {"type": "mrope", "mrope_section": [1]}}, "'mrope'"),
    ({"rope_parameters": {"rope_type": None}}, "None"),
    ({"rope_parameters": {"rope_type": ["yarn"]}}, "yarn"),
    ({"rope_scaling": {"rope_type": "linear", "type": "yarn", "factor": 2.0}}, "and 'yarn'"),
    ({"rope_parameters": {"rope_theta": 1e4, "factor": 8.0}}, "'factor'"),
    ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "'full_attention'"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "a part of each head"),
    ({"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}, "llama_4_scaling_beta"),
    ({"rope_scaling": {"type": "linear"}}, "'factor'"),
    ({"rope_scaling": {"type": "linear", "factor": "2"}}, "'factor'"),
    ({"rope_scaling": {"type": "linear", "factor": 0.5}}, "'factor'"),
    ({"rope_scaling": {"type": "llama3", "factor": 8.0, "low_freq_factor": 1}}, "high_freq"),
    ({"rope_scaling": {"type": "llama3", **LLAMA3, "low_freq_factor": 9}}, "low_freq_factor"),
    ({"rope_scaling": YARN | {"original_max_position_embeddings": 0}}, "original_max"),
    ({"rope_scaling": YARN | {"truncate": 1}}, "truncate"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0,
                       "original_max_position_embeddings": 32}}, "start from"),
    ({"rope_scaling": YARN, "rope_parameters": {"rope_theta": 1.0}}, "contradict"),
    ({"rope_scaling": {"type": "default", "rope_theta": 5.0},
      "rope_parameters": {"rope_theta": 6.0}}, "contradict"),
    ({"rope_scaling": YARN, "original_max_position_embeddings": 32}, "outside"),
    ({"rope_scaling": YARN, "rope_theta": 1.0}, "a base above 1"),
    ({"rope_parameters": []}, "rope_parameters"),
    ({"rope_scaling": 0}, "rope_scaling"),
    ({"rope_parameters": {"rope_theta": "1e4"}}, "rope_theta"),
    ({"rope_parameters": {"rope_theta": None}}, "rope_theta"),
    ({"rope_theta": 10**400}, "rope_theta"),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "part"), REFUSED, ids=[part for _, part in REFUSED])
def test_what_is_not_known_is_refused_by_name(raw: dict[str, Any], part: str) -> None:
    with pytest.raises((CheckpointError, ConfigError)) as caught:
        read(raw)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


SCALINGS = [
    None,
    RopeScaling(rope_type="linear", factor=2.5),
    RopeScaling(rope_type="dynamic", factor=2.0, original_max_position_embeddings=64),
    RopeScaling(rope_type="llama3", **LLAMA3),
    RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    RopeScaling(
        rope_type="yarn", factor=1.0, original_max_position_embeddings=16, attention_factor=1.25
    ),
    RopeScaling(
        rope_type="yarn", factor=3.0, original_max_position_embeddings=9, beta_fast=16.0,
        beta_slow=2.0, attention_factor=0.9, truncate=False,
    ),
]  # fmt: skip


@pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s and s.rope_type)
def test_old_keys_and_new_ones_are_written_and_each_suffices(scaling: RopeScaling | None) -> None:
    config = GPTConfig(max_seq_len=64, rope_theta=700.0, rope_scaling=scaling)
    keys = rotary_keys(config)
    assert read(keys) == (700.0, scaling)
    assert read({"rope_parameters": keys["rope_parameters"]}) == (700.0, scaling)
    del keys["rope_parameters"]
    assert read(keys) == (700.0, scaling)


def test_a_base_of_one_has_no_yarn() -> None:
    with pytest.raises(ConfigError, match="rope_theta"):
        frequencies(16, 1.0, SCALINGS[4])


def test_a_dynamic_original_that_no_file_can_say_is_refused() -> None:
    scaling = RopeScaling(rope_type="dynamic", factor=2.0, original_max_position_embeddings=32)
    with pytest.raises(CheckpointError, match=r"context of the model, 64.*starts from 32"):
        rotary_keys(GPTConfig(max_seq_len=64, rope_scaling=scaling))
