"""llama.cpp computes from our GGUF files what we compute: greedy ids and log-probabilities."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from llama_cpp_oracle import LlamaCpp, opened
from written_models import TEXT, TOKENIZER, model_of, read_back, written

from mlxgpt.checkpoint import load
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.model import GPT, RopeScaling
from mlxgpt.text import train_char

PROMPT = TOKENIZER.encode(TEXT)[:30]
MORE = 60

LLAMA3 = RopeScaling(rope_type="llama3", factor=8.0, original_max_position_embeddings=32)
YARN = RopeScaling(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
SOFTER = RopeScaling(
    rope_type="yarn", factor=4.0, original_max_position_embeddings=32, attention_factor=0.8
)
LINEAR = RopeScaling(rope_type="linear", factor=3.0)

NETWORKS: dict[str, dict[str, Any]] = {
    "llama": {"n_kv_head": 2},
    "one key head, another base": {"n_kv_head": 1, "rope_theta": 500.0},
    "untied": {"tie_embeddings": False},
    "heads of 24": {"head_dim": 24},
    "more ids than the tokenizer": {"vocab_size": TOKENIZER.vocab_size + 13},
    "qwen2": {"qkv_bias": True},
    "qwen2, heads of 24": {"qkv_bias": True, "head_dim": 24},
    "qwen3": {"qk_norm": True, "head_dim": 32, "rms_norm_eps": 1e-3},
    "smollm3": {"no_rope_layers": (3,)},
    "all biases": {"qkv_bias": True, "o_bias": True, "mlp_bias": True},
    "a bias of the output": {"o_bias": True},
    "biases of the MLP": {"mlp_bias": True},
    "linear": {"rope_scaling": LINEAR},
    "llama3": {"rope_scaling": LLAMA3},
    "llama3 with biases": {"rope_scaling": LLAMA3, "qkv_bias": True},
    "yarn": {"rope_scaling": YARN},
    "yarn, softer": {"rope_scaling": SOFTER, "qkv_bias": True},
    "qwen3 with yarn": {"rope_scaling": YARN, "qk_norm": True},
}


def greedy(model: GPT, prompt: list[int]) -> list[int]:
    params = SamplingParams(temperature=0, max_tokens=MORE)
    return [token.token_id for token in generate(model, prompt, params)]


def largest_difference(model: GPT, llama: LlamaCpp, ids: list[int]) -> float:
    """Return that of the logarithms of the likeliest next ids."""
    logits = model(mx.array([ids]))[0, -1]
    ours = logits - mx.logsumexp(logits)
    assert ours.max().item() - ours.min().item() > 3, "they are worth comparing"
    return max(abs(ours[i].item() - p) for i, p in llama.likeliest(ids, 10).items())


@pytest.mark.parametrize("fields", NETWORKS.values(), ids=NETWORKS)
def test_greedy_ids_and_probabilities_are_ours(
    fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    pytest.importorskip("xllamacpp")
    model = model_of(random_gpt, TOKENIZER, **fields)
    ids = greedy(model, PROMPT)
    with opened(written(tmp_path / "model.gguf", model)) as llama:
        assert llama.greedy(PROMPT, MORE) == ids
        for length in (0, MORE // 2, MORE - 1):
            assert largest_difference(model, llama, PROMPT + ids[:length]) < 1e-3


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"dtype": mx.float16}, 0.1),
        ({"dtype": mx.bfloat16}, 0.5),
        ({"bits": 8}, 1.5),
        ({"bits": 4}, 1.5),
        ({"bits": 4, "dtype": mx.float16}, 1.5),
    ],
    ids=str,
)
def test_it_opens_fewer_bits(
    options: dict[str, Any], tolerance: float, tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    """The tolerance is for activations, which llama.cpp rounds as it finds the weights."""
    pytest.importorskip("xllamacpp")
    model = model_of(random_gpt, TOKENIZER)
    path = written(tmp_path / "model.gguf", model, **options)
    rounded = model_of(random_gpt, TOKENIZER)
    rounded.set_weights(read_back(path, model.config, "llama"))
    with opened(path) as llama:
        ids = llama.greedy(PROMPT, MORE)
        assert len(ids) == MORE
        assert llama.text(ids) == TOKENIZER.decode(ids)
        assert largest_difference(rounded, llama, PROMPT) < tolerance
        if options.get("bits") == 4:
            assert largest_difference(model, llama, PROMPT) > 2 * tolerance


def test_a_text_ends_where_it_ends_here(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    pytest.importorskip("xllamacpp")
    model = model_of(random_gpt, TOKENIZER)
    ids = greedy(model, PROMPT)
    third, seventh = ids[3], ids[7]
    assert ids.index(third) == 3
    assert ids.index(seventh) == 7
    with opened(written(tmp_path / "model.gguf", model, stop_ids=[third])) as llama:
        assert llama.greedy(PROMPT, MORE)[:4] == ids[:4]
        assert len(llama.greedy(PROMPT, MORE)) <= 4
    others = [next(i for i in range(40) if i not in ids[:8]), TOKENIZER.eot_id]
    with opened(written(tmp_path / "more.gguf", model, stop_ids=[*others, seventh])) as llama:
        assert llama.greedy(PROMPT, MORE)[:7] == ids[:7]
        assert len(llama.greedy(PROMPT, MORE)) <= 8


def test_a_sliding_window_is_not_known_there(
    tmp_path: Path, random_gpt: Callable[..., GPT], caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("xllamacpp")
    model = model_of(random_gpt, TOKENIZER, sliding_window=40)
    path = written(tmp_path / "model.gguf", model)
    assert "its results are the same up to 40 tokens" in caplog.text
    text = PROMPT + greedy(model, PROMPT)
    with opened(path) as llama:
        assert largest_difference(model, llama, text[:40]) < 1e-3
        assert largest_difference(model, llama, text[:70]) > 1e-2


def test_a_model_of_characters(tmp_path: Path, random_gpt: Callable[..., GPT]) -> None:
    pytest.importorskip("xllamacpp")
    characters = train_char([TEXT])
    model = model_of(random_gpt, characters)
    prompt = characters.encode("the cat sat ")
    ids = greedy(model, prompt)
    with opened(written(tmp_path / "model.gguf", model, tokenizer=characters)) as llama:
        assert llama.ids("the cat sat ") == prompt
        assert llama.greedy(prompt, MORE) == ids
        assert llama.text(ids) == characters.decode(ids)


def test_a_published_checkpoint_gives_its_known_text(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    folder = shared_data / "checkpoints" / "stories260K-hf"
    ids = json.loads((folder / "golden.json").read_text(encoding="utf-8"))["greedy_ids"]
    model, tokenizer = load(folder)
    with opened(written(tmp_path / "model.gguf", model, tokenizer=tokenizer)) as llama:
        assert llama.ids("", borders=True) == ids[:1]
        assert llama.greedy(ids[:1], len(ids) - 1) == ids[1:]


def test_a_name_that_llama_cpp_takes_for_another_model(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    model = model_of(random_gpt, TOKENIZER)
    path = written(tmp_path / "model.gguf", model, name="a tiny phy-3")
    with opened(path):
        pass
    path.write_bytes(path.read_bytes().replace(b"a tiny phy-3", b"a tiny phi-3"))
    params = xllamacpp.CommonParams()
    params.model.path, params.verbosity = str(path), 0
    params.hostnames = [str(tmp_path / "s")]
    with pytest.raises(RuntimeError):
        xllamacpp.Server(params)
