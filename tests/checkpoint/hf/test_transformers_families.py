"""Random models of every family: transformers and we compute the same logits, both ways."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from family_cases import CASES, IDS, Fields, change, transformers_logits, transformers_model

from mlxgpt.checkpoint import load_model, save_model
from mlxgpt.model import GPT
from mlxgpt.text import train_char

TOLERANCE = 1e-4
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def difference(ours: GPT, theirs: np.ndarray, ids: list[list[int]] = IDS) -> float:
    """Return the largest difference of the logits, and see that they are worth comparing."""
    mine = np.array(ours(mx.array(ids)))
    assert mine.std() > 0.1
    return float(np.abs(mine - theirs).max())


@pytest.mark.parametrize(("family", "fields"), CASES.values(), ids=CASES)
def test_what_transformers_saves_is_the_same_network_here(
    family: str, fields: Fields, tmp_path: Path
) -> None:
    theirs = transformers_model(family, fields)
    theirs.save_pretrained(tmp_path / "theirs")
    expected = transformers_logits(theirs, IDS)
    ours = load_model(tmp_path / "theirs")
    assert isinstance(ours, GPT)
    assert difference(ours, expected) < TOLERANCE

    # the keys that older versions wrote
    rotary = json.loads((tmp_path / "theirs" / "config.json").read_text())["rope_parameters"]
    theta = rotary.pop("rope_theta")
    older = {"rope_theta": theta, "rope_scaling": {"type": rotary.pop("rope_type"), **rotary}}
    change(tmp_path / "theirs", ("rope_parameters",), **older)
    assert difference(load_model(tmp_path / "theirs"), expected) < TOLERANCE

    # and back
    tokenizer = train_char(["".join(map(chr, range(40, 90)))])
    save_model(tmp_path / "ours", ours, tokenizer)
    again = pytest.importorskip("transformers").AutoModelForCausalLM
    back = again.from_pretrained(tmp_path / "ours", dtype="float32").eval()
    assert difference(ours, transformers_logits(back, IDS)) < TOLERANCE
    assert load_model(tmp_path / "ours").config == ours.config


@pytest.mark.parametrize(
    ("key", "family", "fields"),
    [
        ("rope_theta", "smollm3", {}),
        ("tie_word_embeddings", "smollm3", {"tie_word_embeddings": True}),
        ("tie_word_embeddings", "llama", {}),
        ("no_rope_layers", "smollm3", {}),
        ("layer_types", "smollm3", {"use_sliding_window": True, "sliding_window": 8}),
        ("layer_types", "qwen2", {"use_sliding_window": True, "sliding_window": 8,
                                  "max_window_layers": 1}),
        ("num_key_value_heads", "smollm3", {"num_key_value_heads": 4}),
        ("num_key_value_heads", "mistral", {"num_key_value_heads": 8, "num_attention_heads": 8}),
        ("num_key_value_heads", "llama", {"num_key_value_heads": 4}),
        ("head_dim", "qwen3", {"head_dim": 128}),
        ("head_dim", "llama", {}),
        ("rms_norm_eps", "qwen2", {}),
        ("max_position_embeddings", "llama", {"max_position_embeddings": 2048}),
        ("hidden_act", "llama", {}),
    ],
)  # fmt: skip
def test_a_key_that_is_left_out_means_what_it_means_to_transformers(
    key: str, family: str, fields: Fields, tmp_path: Path
) -> None:
    theirs = transformers_model(family, fields)
    theirs.save_pretrained(tmp_path)
    before = load_model(tmp_path).config
    change(tmp_path, (key, "rope_parameters") if key == "rope_theta" else (key,))
    loaded: Any = pytest.importorskip("transformers").AutoModelForCausalLM
    expected = transformers_logits(loaded.from_pretrained(tmp_path).eval(), IDS)
    ours = load_model(tmp_path)
    assert difference(ours, expected) < TOLERANCE
    assert ours.config == before


def test_a_mistral_without_its_window_key_has_one_of_4096(tmp_path: Path) -> None:
    theirs = transformers_model("mistral", {"max_position_embeddings": 8192})
    theirs.save_pretrained(tmp_path)
    change(tmp_path, ("sliding_window",))
    assert load_model(tmp_path).config.sliding_window == 4096 == theirs.config.sliding_window


def test_position_300_of_llama3_positions(tmp_path: Path) -> None:
    rotary = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}
    rotary |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    fields = {"head_dim": 16, "max_position_embeddings": 512, "rope_parameters": rotary}
    theirs = transformers_model("llama", fields)
    theirs.save_pretrained(tmp_path)
    ids = np.random.Generator(np.random.Philox(key=2)).integers(0, 60, (1, 310)).tolist()
    ours = load_model(tmp_path)
    expected = transformers_logits(theirs, ids)
    assert difference(ours, expected, ids) < TOLERANCE
    np.testing.assert_allclose(np.array(ours(mx.array(ids)))[0, 300], expected[0, 300], atol=1e-4)


def test_shards_and_half_precision_of_transformers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = transformers_model("qwen3", {"head_dim": 20}).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    weights = load_model(tmp_path, as_stored=True).weights()
    for name, parameter in theirs.state_dict().items():
        bits = parameter.view(torch.int16).numpy().view(np.uint16)
        assert np.array_equal(np.array(weights[name].view(mx.uint16)), bits), name
