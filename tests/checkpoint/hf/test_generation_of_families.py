"""The features of every family, over a cache: the same tokens as without one, in pieces or not."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import load_model, save_model
from mlxgpt.infer import KVCache, SamplingParams, generate, generate_plain, kv_cache
from mlxgpt.model import GPT, RopeScaling
from mlxgpt.text import train_char

TOKENIZER = train_char(["".join(map(chr, range(40, 100)))])
ORIGINAL = {"original_max_position_embeddings": 16}
BIASES = {"qkv_bias": True, "o_bias": True, "mlp_bias": True}

FEATURES: dict[str, dict[str, Any]] = {
    "window": {"sliding_window": 6},
    "window of one": {"sliding_window": 1},
    "some layers slide": {"sliding_window": 6, "sliding_layers": (1,), "qkv_bias": True},
    "layers without rotary": {"no_rope_layers": (0, 2)},
    "no layer has rotary": {"no_rope_layers": (0, 1, 2)},
    "q/k norms": {"qk_norm": True},
    "biases": BIASES,
    "linear": {"rope_scaling": RopeScaling(rope_type="linear", factor=3.0)},
    "llama3": {"rope_scaling": RopeScaling(rope_type="llama3", factor=8.0, **ORIGINAL)},
    "yarn": {"rope_scaling": RopeScaling(rope_type="yarn", factor=4.0, **ORIGINAL)},
    "qwen3 with all it can have": {
        "qk_norm": True, "qkv_bias": True, "o_bias": True, "sliding_window": 6,
        "sliding_layers": (0, 2), "rope_theta": 700.0,
        "rope_scaling": RopeScaling(rope_type="yarn", factor=4.0, **ORIGINAL),
    },
    "smollm3 with all it can have": {
        **BIASES, "sliding_window": 6, "sliding_layers": (0,), "no_rope_layers": (0, 1),
        "rope_scaling": RopeScaling(rope_type="llama3", factor=8.0, **ORIGINAL),
    },
}  # fmt: skip


@pytest.mark.parametrize("context", [20, 64], ids=["beyond the context", "within"])
@pytest.mark.parametrize("fields", FEATURES.values(), ids=FEATURES)
def test_the_cache_changes_no_token(
    fields: dict[str, Any],
    context: int,
    tmp_path: Path,
    random_gpt: Callable[..., GPT],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["mlxgpt.infer.language_model"], "PIECE", 7)
    monkeypatch.setattr(kv_cache, "_GROWTH", 5)
    made = random_gpt(n_layer=3, vocab_size=TOKENIZER.vocab_size, max_seq_len=context, **fields)
    save_model(tmp_path, made, TOKENIZER)
    model = load_model(tmp_path)
    assert isinstance(model, GPT)
    assert model.config == made.config
    prompt = np.random.Generator(np.random.Philox(key=3)).integers(0, 61, 23).tolist()
    params = SamplingParams(temperature=1.0, seed=1, max_tokens=20)
    fast = list(generate(model, prompt, params))
    assert fast == list(generate_plain(model, prompt, params))
    assert len({t.token_id for t in fast}) > 5

    cache = KVCache(3)
    ids = mx.array([prompt])
    pieces = [model(ids[:, a:b], cache) for a, b in ((0, 9), (9, 10), (10, 23))]
    together = mx.concatenate(pieces, axis=1)
    assert mx.abs(together - model(ids)).max().item() < 1e-4
