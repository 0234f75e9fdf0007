"""The metadata of a GGUF file -> the network: a key is used, without effect, or refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_gguf import LAYERS, VOCAB, WIDTH, model_metadata, model_tensors, write_gguf

from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.checkpoint.gguf.rope_factors import llama3_scaling, rope_factors
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPTConfig, RopeScaling
from mlxgpt.model.rope_scaling import frequencies


def config_of(
    folder: Path, architecture: str = "llama", more: dict[str, Any] | None = None, **changes: Any
) -> GPTConfig:
    return GGUFFile(file_of(folder, architecture, more, **changes)).config


def file_of(
    folder: Path, architecture: str = "llama", more: dict[str, Any] | None = None, **changes: Any
) -> Path:
    tensors = model_tensors(architecture) | (more or {})
    return write_gguf(folder / "x.gguf", model_metadata(architecture, **changes), tensors)


def test_the_sizes_are_those_of_the_file(tmp_path: Path) -> None:
    assert config_of(tmp_path) == GPTConfig(
        n_layer=2, n_embd=64, n_head=4, n_kv_head=2, head_dim=16, intermediate_size=96,
        vocab_size=48, max_seq_len=128, rope_theta=500.0, rms_norm_eps=1e-5, tie_embeddings=True,
    )  # fmt: skip


USED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all heads": ({"attention__head_count_kv": None}, {"n_kv_head": 4}),
    "one value for all layers": ({"attention__head_count_kv": [2, 2]}, {"n_kv_head": 2}),
    "larger heads": (
        {"attention__key_length": 24, "attention__value_length": 24, "rope__dimension_count": 24},
        {"head_dim": 24},
    ),
    "the usual base": ({"rope__freq_base": None}, {"rope_theta": 10000.0}),
    "a window": ({"attention__sliding_window": 7}, {"sliding_window": 7}),
    "no window": ({"attention__sliding_window": 0}, {"sliding_window": None}),
    "eps": ({"attention__layer_norm_rms_epsilon": 3e-6}, {"rms_norm_eps": 3e-6}),
    "vocabulary": ({"vocab_size": VOCAB}, {"vocab_size": VOCAB}),
    "no experts": ({"expert_count": 0, "expert_used_count": 0}, {"n_layer": LAYERS}),
    "a linear stretch": (
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
        {"rope_scaling": RopeScaling(rope_type="linear", factor=4)},
    ),
    "a stretch without a type": (
        {"rope__scaling__factor": 2.0}, {"rope_scaling": RopeScaling(rope_type="linear", factor=2)}
    ),
    "the old key of a stretch": (
        {"rope__scale_linear": 2.0}, {"rope_scaling": RopeScaling(rope_type="linear", factor=2)}
    ),
    "no stretch": (
        {"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, {"rope_scaling": None}
    ),
    "yarn": (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0,
         "rope__scaling__original_context_length": 32, "rope__scaling__yarn_beta_fast": 16.0,
         "rope__scaling__yarn_beta_slow": 2.0, "rope__scaling__finetuned": True},
        {"rope_scaling": RopeScaling(
            rope_type="yarn", factor=4, original_max_position_embeddings=32, beta_fast=16,
            beta_slow=2,
        )},
    ),
    "yarn of the context": (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": 2.0},
        {"rope_scaling": RopeScaling(
            rope_type="yarn", factor=2, original_max_position_embeddings=128
        )},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "fields"), USED.values(), ids=USED)
def test_a_key_is_used(changes: dict[str, Any], fields: dict[str, Any], tmp_path: Path) -> None:
    config = config_of(tmp_path, **changes)
    assert {name: getattr(config, name) for name in fields} == fields


def test_the_attention_factor_of_yarn_comes_on_top_of_the_usual_one(tmp_path: Path) -> None:
    yarn = {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}
    for key in ("attn_factor", "yarn_attn_factor"):
        scaling = config_of(tmp_path, **yarn, **{f"rope__scaling__{key}": 0.5}).rope_scaling
        assert scaling is not None
        assert scaling.query_scale == pytest.approx(0.5 * (1 + 0.1 * np.log(4)))


def test_tensors_say_what_the_metadata_do_not(tmp_path: Path) -> None:
    vector = np.ones(WIDTH)
    assert not config_of(tmp_path, more={"output.weight": np.ones((VOCAB, WIDTH))}).tie_embeddings
    assert config_of(tmp_path, more={"blk.0.attn_q.bias": vector}).qkv_bias
    assert config_of(tmp_path, more={"blk.0.attn_output.bias": vector}).o_bias
    assert config_of(tmp_path, more={"blk.0.ffn_gate.bias": vector}).mlp_bias
    assert config_of(tmp_path, "qwen3").qk_norm
    plain = config_of(tmp_path, "qwen2")
    assert not any((plain.qkv_bias, plain.o_bias, plain.mlp_bias, plain.qk_norm))


def test_every_fourth_layer_of_a_smollm3_has_no_positions(tmp_path: Path) -> None:
    tensors = model_tensors("smollm3", layers=9)
    path = write_gguf(tmp_path / "x.gguf", model_metadata("smollm3", block_count=9), tensors)
    assert GGUFFile(path).config.no_rope_layers == (3, 7)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "experts": ({"expert_count": 8}, "llama.expert_count = 8 is not supported"),
    "a scale of logits": ({"logit_scale": 0.5}, "llama.logit_scale = 0.5 is not supported"),
    "an unknown key": ({"attention__odd": 1}, "llama.attention.odd = 1 is not supported"),
    "half a head turned": ({"rope__dimension_count": 8}, "rope.dimension_count = 8 is not"),
    "other values": ({"attention__value_length": 8}, "attention.value_length = 8 is not"),
    "layers that differ": ({"feed_forward_length": [96, 64]}, "differs between layers"),
    "longrope": (
        {"rope__scaling__type": "longrope", "rope__scaling__factor": 2.0},
        "rope.scaling.type 'longrope' is not supported; known: none, linear, yarn",
    ),
    "another vocabulary": ({"vocab_size": 50}, "is 50, but 'token_embd.weight' has 48 rows"),
    "no width": ({"embedding_length": None}, "has no 'llama.embedding_length'"),
    "no layers": ({"block_count": 0}, "llama.block_count must be a whole number above 0, got '0'"),
    "a text": ({"block_count": "2"}, "llama.block_count must be a whole number"),
    "a truth": ({"block_count": True}, "llama.block_count must be a whole number"),
    "no eps": ({"attention__layer_norm_rms_epsilon": None}, "has no 'llama.attention.layer"),
    "eps of 2": ({"attention__layer_norm_rms_epsilon": 2.0}, "'rms_norm_eps' must be above 0"),
    "NaN": ({"rope__freq_base": float("nan")}, "rope.freq_base must be a finite number"),
    "heads": ({"attention__head_count_kv": 3}, "must be a multiple of 'n_kv_head'"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_what_the_network_lacks_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = file_of(tmp_path, **changes)
    with pytest.raises(CheckpointError) as e:
        _ = GGUFFile(path).config
    assert message in str(e.value)
    assert str(e.value).startswith(str(path))


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="architecture 'gemma3' are not supported; known: ll"):
        config_of(tmp_path, "gemma3")
    (tmp_path / "x.gguf").write_bytes(b"GGUF\3\0\0\0" + bytes(16))
    with pytest.raises(CheckpointError, match=r"no 'general\.architecture'"):
        _ = GGUFFile(tmp_path / "x.gguf").config
    path = write_gguf(tmp_path / "x.gguf", model_metadata() | {"split.count": 3}, {})
    with pytest.raises(CheckpointError, match="one of 3 parts of a model; join them"):
        _ = GGUFFile(path).config


# Llama 3's rotary positions

SCALINGS = [(8.0, 8192), (32.0, 8192), (8.0, 64), (2.0, 4096), (7.5, 1024)]


@pytest.mark.parametrize(("factor", "original"), SCALINGS)
@pytest.mark.parametrize(("head_dim", "theta"), [(128, 500000.0), (64, 500000.0), (16, 1e4)])
def test_the_settings_of_llama3_are_found(
    factor: float, original: int, head_dim: int, theta: float
) -> None:
    scaling = RopeScaling(
        rope_type="llama3", factor=factor, original_max_position_embeddings=original
    )
    factors = rope_factors(head_dim, theta, scaling).astype(np.float32).astype(np.float64)
    found = llama3_scaling(factors, head_dim, theta, "x")
    if np.allclose(factors, 1):
        assert found is None
        return
    np.testing.assert_allclose(
        frequencies(head_dim, theta, found), frequencies(head_dim, theta, scaling), rtol=1e-5
    )
    if head_dim > 16:  # else several settings give the same factors
        assert found == scaling


def test_a_factor_that_no_pair_shows_in_full_is_found_too() -> None:
    scaling = RopeScaling(rope_type="llama3", factor=8, original_max_position_embeddings=1024)
    factors = rope_factors(16, 100.0, scaling)
    assert 1.1 < factors.max() < 2
    assert llama3_scaling(factors, 16, 100.0, "x") == scaling


def test_factors_are_read_from_their_tensor(tmp_path: Path) -> None:
    scaling = RopeScaling(rope_type="llama3", factor=8, original_max_position_embeddings=32)
    factors = rope_factors(16, 500.0, scaling)
    assert len(set(factors)) > 3
    config = config_of(tmp_path, more={"rope_freqs.weight": factors})
    assert config.rope_scaling == scaling
    assert config_of(tmp_path, more={"rope_freqs.weight": np.ones(8)}).rope_scaling is None
    file = GGUFFile(file_of(tmp_path, more={"rope_freqs.weight": factors}))
    assert not any("rope" in name for name, _ in file.weights())
    odd = {
        "not what the Llama 3 formula gives": factors * [1, 1, 1, 1, 1, 1, 1, 1.001],
        "not what the Llama 3": np.ones(7),
        "is F32 of shape [2, 4]; expected F32 numbers in a row": np.ones((2, 4)),
    }
    for message, numbers in odd.items():
        with pytest.raises(CheckpointError) as e:
            config_of(tmp_path, more={"rope_freqs.weight": numbers})
        assert message in str(e.value)
    with pytest.raises(CheckpointError, match=r"both 'rope_freqs\.weight' and llama\.rope"):
        config_of(tmp_path, more={"rope_freqs.weight": factors}, rope__scaling__factor=2.0)
