"""Folders that transformers saves, of architectures that mlx-lm runs: the same logits here."""

from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import BorrowedModel, load_model

IDS = [[1, 5, 9, 33, 60, 2, 7, 7, 8, 9, 11, 3, 4, 40, 22]]
SIZES = {
    "hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 48, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 61, "max_position_embeddings": 64,
    "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
ROPE = {"rope_type": "default", "rope_theta": 500.0}
PART = ROPE | {"partial_rotary_factor": 0.25}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
CASES: dict[str, dict[str, Any]] = {
    "Gemma2": {"head_dim": 8, "rope_parameters": ROPE},
    "Phi3": {"rope_parameters": ROPE},
    "Olmo2": {"rope_parameters": ROPE | {"rope_type": "linear", "factor": 4.0}},
    "StableLm": {"rope_parameters": PART},
    "GPTNeoX": {"intermediate_size": 128, "rope_parameters": PART, "hidden_act": "gelu"},
    "Mixtral": {"num_local_experts": 4, "rope_parameters": ROPE},
    "Qwen3Moe": EXPERTS | {"head_dim": 8, "num_experts": 4, "rope_parameters": ROPE},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers", "5")
    settings = SIZES | CASES[name]
    if name == "GPTNeoX":
        del settings["num_key_value_heads"]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    theirs = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in theirs.parameters():
            noise = torch.randn_like(parameter)
            if parameter.dim() == 1:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(1.5 * parameter.shape[-1] ** -0.5 * noise)
        expected = theirs(torch.tensor(IDS)).logits.numpy()
    theirs.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert isinstance(model, BorrowedModel)
    assert expected.std() > 0.5
    # mlx-lm computes the GELU of GPT-NeoX by its tanh form.
    tolerance = 1e-2 if name == "GPTNeoX" else 1e-4
    np.testing.assert_allclose(np.array(model(mx.array(IDS))), expected, atol=tolerance)
