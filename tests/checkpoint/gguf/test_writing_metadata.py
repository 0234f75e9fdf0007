"""Which architecture of llama.cpp a network becomes, what is said of it, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import mlx.core as mx
import pytest
from written_models import TOKENIZER, model_of, written

from mlxgpt.checkpoint.gguf.writing_metadata import architecture_of, model_metadata
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT, GPTConfig, RopeScaling
from mlxgpt.text import Tokenizer, train_bpe


def config(**fields: Any) -> GPTConfig:
    return GPTConfig(**{"n_layer": 8, "vocab_size": 300} | fields)


def scaling(kind: Any, factor: float = 4.0, **fields: Any) -> RopeScaling:
    return RopeScaling(rope_type=kind, factor=factor, original_max_position_embeddings=64, **fields)


@pytest.mark.parametrize(
    ("architecture", "fields"),
    [
        ("llama", {}),
        ("llama", {"o_bias": True}),
        ("llama", {"qkv_bias": True, "o_bias": True}),
        ("llama", {"qkv_bias": True, "mlp_bias": True}),
        ("llama", {"rope_scaling": scaling("llama3")}),
        ("llama", {"qkv_bias": True, "rope_scaling": scaling("llama3")}),
        ("llama", {"qkv_bias": True, "head_dim": 48}),
        ("llama", {"sliding_window": 99}),
        ("qwen2", {"qkv_bias": True}),
        ("qwen2", {"qkv_bias": True, "rope_scaling": scaling("yarn")}),
        ("qwen3", {"qk_norm": True, "rope_scaling": scaling("linear")}),
        ("smollm3", {"no_rope_layers": (3, 7)}),
        ("smollm3", {"no_rope_layers": (3,), "n_layer": 4}),
    ],
    ids=str,
)
def test_each_network_has_an_architecture(architecture: str, fields: dict[str, Any]) -> None:
    assert architecture_of(config(**fields)) == architecture


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rope_scaling": scaling("dynamic")}, "rotary positions of the type dynamic"),
        ({"rope_scaling": scaling("yarn", beta_fast=16)}, "yarn with other borders .* 16 and 1;"),
        ({"rope_scaling": scaling("yarn", beta_slow=2)}, "yarn with other borders .* 32 and 2;"),
        ({"rope_scaling": scaling("yarn", truncate=False)}, "32 and 1, not rounded"),
        ({"no_rope_layers": (3,)}, "other than every 4th; got 3 of 8"),
        ({"no_rope_layers": (2, 5)}, "other than every 4th; got 2, 5 of 8"),
        ({"no_rope_layers": (3, 7), "qkv_bias": True}, "biases of queries.*smollm3"),
        ({"no_rope_layers": (3, 7), "o_bias": True}, "bias of attention's output.*smollm3"),
        ({"no_rope_layers": (3, 7), "rope_scaling": scaling("llama3")}, "llama3.*smollm3"),
        ({"qk_norm": True, "no_rope_layers": (3, 7)}, "layers without rotary.*qwen3"),
        ({"qk_norm": True, "qkv_bias": True}, "biases of queries.*qwen3"),
        ({"qk_norm": True, "mlp_bias": True}, "biases of the MLP.*qwen3"),
        ({"qk_norm": True, "rope_scaling": scaling("llama3")}, "llama3.*qwen3"),
    ],
    ids=str,
)
def test_what_llama_cpp_lacks_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        architecture_of(config(**fields))
    assert str(caught.value).endswith("export to hf instead")


def test_sizes_and_rotary_settings_are_said() -> None:
    one = config(n_head=4, n_kv_head=2, head_dim=48, rope_theta=5e5, intermediate_size=96)
    assert model_metadata(one, "llama") == {
        "llama.context_length": 128,
        "llama.embedding_length": 128,
        "llama.block_count": 8,
        "llama.feed_forward_length": 96,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.key_length": 48,
        "llama.attention.value_length": 48,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": 300,
        "llama.rope.dimension_count": 48,
        "llama.rope.freq_base": 5e5,
    }
    plain = model_metadata(config(), "qwen3")
    stretched = {
        "linear": {"type": "linear", "factor": 4.0},
        "yarn": {"type": "yarn", "factor": 4.0, "original_context_length": 64},
        "llama3": {},
    }
    for kind, settings in stretched.items():
        said = model_metadata(config(rope_scaling=scaling(kind)), "qwen3")
        context = {"qwen3.context_length": 256 if kind == "yarn" else 128}
        known = {f"qwen3.rope.scaling.{name}": value for name, value in settings.items()}
        assert said == plain | context | known
    softer = model_metadata(config(rope_scaling=scaling("yarn", attention_factor=0.5)), "llama")
    assert softer["llama.rope.scaling.attn_factor"] == pytest.approx(0.5 / 1.1386294)


def test_a_window_is_a_note_unless_all_texts_fit(caplog: pytest.LogCaptureFixture) -> None:
    said = model_metadata(config(sliding_window=128), "llama")
    assert said["llama.attention.sliding_window"] == 128
    assert not caplog.records
    assert model_metadata(config(sliding_window=127), "llama")
    assert "the same up to 127 tokens" in caplog.text
    part = model_metadata(config(sliding_window=64, sliding_layers=(1, 3)), "llama")
    assert "llama.attention.sliding_window" not in part
    assert "the same up to 64 tokens" in caplog.text


@pytest.fixture
def model(random_gpt: Callable[..., GPT]) -> GPT:
    return model_of(random_gpt, TOKENIZER)


def said_in(path: Path) -> dict[str, Any]:
    return {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}


def test_the_file_says_what_it_is(model: GPT, tmp_path: Path) -> None:
    path = tmp_path / "new" / "model.gguf"
    template = "{% for m in messages %}{{ m.content }}{% endfor %}\n"
    about = {"name": "A cat", "license": "mit", "author": "Me", "description": "Writes."}
    said = said_in(written(path, model, chat_template=template, bits=4, **about))
    known = {f"general.{key}": value for key, value in about.items()}
    known |= {"general.type": "model", "general.architecture": "llama", "general.file_type": 2}
    known |= {"general.quantization_version": 2, "tokenizer.chat_template": template}
    assert known.items() <= said.items()
    assert said["llama.block_count"] == 4
    assert said["tokenizer.ggml.eos_token_id"] == TOKENIZER.eot_id
    assert len(said["tokenizer.ggml.tokens"]) == model.config.vocab
    plain = said_in(written(path, model))
    assert plain.keys() == said.keys() - {
        "general.license", "general.author", "general.description",
        "general.quantization_version", "tokenizer.chat_template",
    }  # fmt: skip
    for options, number in (
        ({}, 0), ({"dtype": mx.float16}, 1), ({"dtype": mx.bfloat16}, 32), ({"bits": 8}, 7)
    ):  # fmt: skip
        assert said_in(written(path, model, **options))["general.file_type"] == number


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 5}, "4 or 8 bits; got 5"),
        ({"dtype": mx.int8}, r"float32, float16, bfloat16; got .*int8"),
        ({"name": "my Phi-3"}, "takes a model called 'my Phi-3' for Phi 3"),
        ({"name": "phi3"}, "choose a name without that"),
    ],
)
def test_settings_that_lead_to_no_model_are_refused(
    options: dict[str, Any], message: str, model: GPT, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=message):
        written(tmp_path / "model.gguf", model, **options)
    assert not list(tmp_path.iterdir())


def test_a_phi_with_its_tokens_may_have_its_name(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    specials = ["</s>", "<unk>", "<s>", "<|endoftext|>"]
    tokenizer: Tokenizer = train_bpe(["a b c " * 20], 270, special_tokens=specials)
    model = model_of(random_gpt, tokenizer)
    written(tmp_path / "model.gguf", model, tokenizer=tokenizer, name="phi-3")
