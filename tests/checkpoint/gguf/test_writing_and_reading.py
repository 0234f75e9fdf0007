"""What we write as GGUF, we read as the same model: config, weights, tokenizer, ends, template."""

import json
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from written_models import TEXT, TOKENIZER, model_of, written

from mlxgpt.checkpoint import load_model, plain_weights
from mlxgpt.checkpoint.gguf import GGUFFile
from mlxgpt.errors import MLXGPTWarning
from mlxgpt.model import GPT, RopeScaling
from mlxgpt.text import Tokenizer, train_bpe, train_char


def scaling(kind: Any, **fields: Any) -> dict[str, Any]:
    settings = {"factor": 4.0, "original_max_position_embeddings": 32} | fields
    return {"rope_scaling": RopeScaling(rope_type=kind, **settings)}


NETWORKS: dict[str, dict[str, Any]] = {
    "llama": {"n_kv_head": 2, "tie_embeddings": False, "rope_theta": 5e5},
    "heads of 24, padded": {"head_dim": 24, "vocab_size": TOKENIZER.vocab_size + 9},
    "all biases": {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    "qwen2": {"qkv_bias": True, "n_kv_head": 1},
    "qwen3": {"qk_norm": True, "n_kv_head": 2, "rms_norm_eps": 1e-6},
    "smollm3": {"no_rope_layers": (3,)},
    "window": {"sliding_window": 40},
    "linear": scaling("linear", original_max_position_embeddings=None),
    "llama3": scaling("llama3", factor=8.0),
    "yarn": scaling("yarn"),
    "yarn, softer": scaling("yarn", attention_factor=0.75),
}
IDS = mx.array([TOKENIZER.encode(TEXT)[:50]])


@pytest.mark.parametrize("fields", NETWORKS.values(), ids=NETWORKS)
def test_the_same_network(
    fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model = model_of(random_gpt, TOKENIZER, **fields)
    file = GGUFFile(written(tmp_path / "model.gguf", model, chat_template="{{ x }}"))
    read, known = file.config, model.config
    assert read.context == known.context
    for name in ("n_embd", "kv_heads", "head_size", "mlp_size", "vocab", "rope_theta"):
        assert getattr(read, name) == getattr(known, name), name
    for name, w in file.weights():
        assert mx.array_equal(w, model.weights()[name]), name
    assert mx.abs(load_model(file)(IDS) - model(IDS)).max().item() < 1e-4
    assert file.chat_template == "{{ x }}"
    assert file.stop_ids == {TOKENIZER.eot_id}
    assert file.tokenizer().encode(TEXT) == TOKENIZER.encode(TEXT)
    assert file.tokenizer().vocab_size <= read.vocab


def test_ends_and_quantized_weights(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    model = model_of(random_gpt, TOKENIZER)
    file = GGUFFile(written(tmp_path / "a.gguf", model, stop_ids=[5, 9, TOKENIZER.eot_id], bits=8))
    assert file.stop_ids == {5, 9, TOKENIZER.eot_id}
    assert {how.bits for how in file.quantization.values()} == {8}
    for name, w in plain_weights(file, mx.float32):
        assert mx.abs(w - model.weights()[name]).max().item() < 0.02, name


def check(
    tokenizer: Tokenizer, path: Path, random_gpt: Callable[..., GPT], more: list[str]
) -> None:
    sizes: dict[str, Any] = {"n_layer": 1, "n_embd": 32, "n_head": 2, "intermediate_size": 32}
    model = random_gpt(vocab_size=tokenizer.vocab_size + 5, **sizes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MLXGPTWarning)
        again = GGUFFile(written(path, model, tokenizer=tokenizer)).tokenizer()
    assert again.vocab_size == tokenizer.vocab_size, "without the padding"
    assert again.special_tokens == tokenizer.special_tokens
    for text in (
        TEXT,
        "  it's \t 1234\n\r\n 日本 👍🏽  don'T é",
        "<s>hi</s><|endoftext|> x",
        *more,
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MLXGPTWarning)
            for whole in (False, True):
                ids = tokenizer.encode(text, "all", add_special_tokens=whole)
                assert again.encode(text, "all", add_special_tokens=whole) == ids, text
            assert again.decode(ids) == tokenizer.decode(ids)


@pytest.mark.parametrize("pattern", ["gpt2", "llama3", "qwen2"])
def test_the_same_ids(pattern: str, tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    check(train_bpe([TEXT], 320, pattern=pattern), tmp_path / "model.gguf", random_gpt, [])


def test_the_same_ids_of_characters(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    check(train_char([TEXT]), tmp_path / "model.gguf", random_gpt, [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["gpt2", "llama3", "gguf-starcoder", "smollm2-from-gguf", "llama2", "qwen3"]
)
def test_the_same_ids_of_well_known_models(
    name: str, shared_data: Path, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    folder = shared_data / "tokenizers" / name
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    more = [case["text"] for case in golden["cases"]]
    more = [text for text in more if unicodedata.is_normalized("NFC", text)]
    check(Tokenizer.load(folder), tmp_path / "model.gguf", random_gpt, more)
