"""Random models of every family: mlx-lm and we compute the same logits, both ways."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from family_cases import IDS

from mlxgpt.checkpoint import load_model, read_json, save_model, write_json
from mlxgpt.model import GPT, RopeScaling
from mlxgpt.text import train_char

mlx_lm_utils = pytest.importorskip("mlx_lm.utils")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

TOKENIZER = train_char(["".join(map(chr, range(40, 100)))])
YARN = RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
LLAMA3 = RopeScaling(rope_type="llama3", factor=8.0, original_max_position_embeddings=32)


def yarn(**fields: Any) -> RopeScaling:
    return RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=16, **fields)


# name -> (model_type that is written, fields of GPTConfig)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain, another base": ("llama", {"rope_theta": 700.0}),
    "untied": ("llama", {"tie_embeddings": False}),
    "multi-head, head_dim": ("llama", {"n_kv_head": 4, "head_dim": 10, "rms_norm_eps": 1e-3}),
    "multi-query": ("llama", {"n_kv_head": 1}),
    "biases": ("llama", {"qkv_bias": True, "o_bias": True, "mlp_bias": True}),
    "linear": ("llama", {"rope_scaling": RopeScaling(rope_type="linear", factor=3.0)}),
    "dynamic": (
        "llama",
        {"rope_scaling": RopeScaling(
            rope_type="dynamic", factor=2.0, original_max_position_embeddings=64)},
    ),
    "llama3": ("llama", {"rope_scaling": LLAMA3, "rope_theta": 5e5}),
    "yarn": ("llama", {"rope_scaling": YARN}),
    "yarn with a factor of attention": ("llama", {"rope_scaling": yarn(attention_factor=1.7)}),
    "yarn, smaller": ("llama", {"rope_scaling": yarn(attention_factor=0.8, beta_fast=8.0)}),
    "odd width": ("mistral", {"n_embd": 42, "head_dim": 8}),
    "window of the whole text": ("mistral", {"sliding_window": 100}),
    "q, k and v with biases": ("qwen2", {"qkv_bias": True, "rope_theta": 1e6}),
    "q, k and v with biases, yarn": ("qwen2", {"qkv_bias": True, "rope_scaling": YARN}),
    "norms": ("qwen3", {"qk_norm": True, "head_dim": 12}),
    "norms, yarn": ("qwen3", {"qk_norm": True, "rope_scaling": YARN, "tie_embeddings": False}),
    "layers without rotary": ("smollm3", {"no_rope_layers": (1, 2)}),
    "layers that slide": ("smollm3", {"sliding_window": 8, "sliding_layers": (0, 2)}),
    "both, biases, llama3": (
        "smollm3",
        {"no_rope_layers": (0,), "sliding_window": 8, "sliding_layers": (1,), "qkv_bias": True,
         "o_bias": True, "mlp_bias": True, "rope_scaling": LLAMA3, "tie_embeddings": False},
    ),
}  # fmt: skip


def save(directory: Path, make: Callable[..., GPT], fields: dict[str, Any]) -> GPT:
    model = make(n_layer=3, vocab_size=TOKENIZER.vocab_size, max_seq_len=64, **fields)
    save_model(directory, model, TOKENIZER)
    return model


def difference(ours: GPT, theirs: Any) -> float:
    mine = np.array(ours(mx.array(IDS)))
    assert mine.std() > 0.1
    return float(np.abs(mine - np.array(theirs(mx.array(IDS)))).max())


@pytest.mark.parametrize(("model_type", "fields"), CASES.values(), ids=CASES)
def test_mlx_lm_reads_what_we_write_as_the_same_network(
    model_type: str, fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model = save(tmp_path, random_gpt, fields)
    assert read_json(tmp_path / "config.json")["model_type"] == model_type
    theirs, _ = mlx_lm_utils.load_model(tmp_path)
    assert difference(model, theirs) < 1e-4
    back = load_model(tmp_path)
    assert isinstance(back, GPT)
    assert back.config == model.config


@pytest.mark.parametrize(("model_type", "fields"), CASES.values(), ids=CASES)
def test_the_keys_that_mlx_lm_reads_suffice_for_us(
    model_type: str, fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model = save(tmp_path, random_gpt, fields)
    raw = read_json(tmp_path / "config.json")
    del raw["rope_parameters"]
    write_json(tmp_path / "config.json", raw)
    again = load_model(tmp_path)
    assert isinstance(again, GPT)
    assert again.config == model.config


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "smollm3"])
def test_what_mlx_lm_makes_itself_is_the_same_network_here(model_type: str, tmp_path: Path) -> None:
    raw = {
        "model_type": model_type, "hidden_size": 48, "intermediate_size": 40, "head_dim": 12,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": 61, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "rope_theta": 700.0, "tie_word_embeddings": False, "sliding_window": None,
        "rope_scaling": {"type": "linear", "factor": 2.0},
    }  # fmt: skip
    network, arguments = mlx_lm_utils._get_classes(raw)
    mx.random.seed(0)
    theirs = network(arguments.from_dict(raw))
    mlx_lm_utils.save_model(tmp_path, theirs)
    mlx_lm_utils.save_config(raw, tmp_path / "config.json")
    ours = load_model(tmp_path)
    assert isinstance(ours, GPT)
    assert difference(ours, theirs) < 1e-4


def test_a_text_longer_than_the_window_tells_a_mistral_from_a_llama(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    """What mlx-lm ignores, and why the window must be read."""
    model = save(tmp_path, random_gpt, {"sliding_window": 8})
    theirs, _ = mlx_lm_utils.load_model(tmp_path)
    assert difference(model, theirs) > 1e-2
    mine, other = model(mx.array(IDS)), theirs(mx.array(IDS))
    assert mx.abs(mine - other)[:, :8].max().item() < 1e-4
