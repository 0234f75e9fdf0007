"""What we write, mlx-lm and transformers read as the same network; and the other way round."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.checkpoint import load, load_model, open_checkpoint, save_model
from mlxgpt.infer import SamplingParams, generate
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe, train_char

TEXT = "the cat sat on the mat, and the dog lay down by the fire; 3 + 4 = 7\n" * 20
TOLERANCE = 1e-4

SHAPES = {
    "multi-head": {"n_kv_head": 4},
    "grouped": {"n_kv_head": 2, "rope_theta": 500.0},
    "multi-query, untied": {"n_kv_head": 1, "tie_embeddings": False, "rms_norm_eps": 1e-3},
    "nine heads of 56": {"n_embd": 72, "n_head": 9, "n_kv_head": 1, "head_dim": 56},
}
IDS = np.random.Generator(np.random.Philox(key=1)).integers(0, 60, (2, 40)).tolist()


def written(
    directory: Path, random_gpt: Callable[..., GPT], fields: dict[str, Any], bpe: bool = False
) -> tuple[GPT, Tokenizer]:
    tokenizer = train_bpe([TEXT], 300) if bpe else train_char([TEXT])
    model = random_gpt(vocab_size=tokenizer.vocab_size, max_seq_len=64, **fields)
    save_model(directory, model, tokenizer)
    return model, tokenizer


def difference(ours: GPT, theirs: Any) -> float:
    """Return the largest difference of the logits, and see that they are worth comparing."""
    mine = np.array(ours(mx.array(IDS)))
    assert mine.std() > 0.1
    return float(np.abs(mine - np.array(theirs)).max())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
def test_mlx_lm_loads_what_we_save(
    fields: dict[str, Any],
    tmp_path: Path,
    random_gpt: Callable[..., GPT],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    mlx_lm = pytest.importorskip("mlx_lm")
    model, tokenizer = written(tmp_path, random_gpt, fields, bpe=True)
    theirs, their_tokenizer = mlx_lm.load(str(tmp_path))
    assert type(theirs).__module__ == "mlx_lm.models.llama"
    assert difference(model, theirs(mx.array(IDS))) < TOLERANCE
    text = "the dog sat; 5 + 5"
    assert their_tokenizer.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert set(their_tokenizer.eos_token_ids) == {tokenizer.eot_id}


# transformers

Config = dict[str, Any]


def llama(fields: Config, *, tied: bool) -> Any:
    """A small random LlamaForCausalLM in which no gain is 1."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        **{
            "hidden_size": 48, "intermediate_size": 40, "num_hidden_layers": 3,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61,
            "max_position_embeddings": 64, "tie_word_embeddings": tied, "initializer_range": 0.2,
        } | fields
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def their_logits(model: Any) -> np.ndarray:
    torch = pytest.importorskip("torch")
    with torch.no_grad():
        return model(torch.tensor(IDS)).logits.float().numpy()


FOREIGN: dict[str, Config] = {
    "grouped": {},
    "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    "nine heads of 56": {
        "hidden_size": 72, "num_attention_heads": 9, "num_key_value_heads": 1, "head_dim": 56,
    },
    "multi-head": {"num_key_value_heads": 4, "rms_norm_eps": 1e-3},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("fields", FOREIGN.values(), ids=FOREIGN)
def test_we_load_what_transformers_saves(fields: Config, tied: bool, tmp_path: Path) -> None:
    theirs = llama(fields, tied=tied)
    theirs.save_pretrained(tmp_path)
    expected = their_logits(theirs)
    assert difference(load_model(tmp_path), expected) < TOLERANCE
    # the keys that older versions wrote
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = None
    file.write_text(json.dumps(config))
    assert difference(load_model(tmp_path), expected) < TOLERANCE
    # and without the base at all it would not have been the same
    if "rope_parameters" in fields:
        del config["rope_theta"]
        file.write_text(json.dumps(config))
        assert difference(load_model(tmp_path), expected) > 10 * TOLERANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_we_load_the_shards_of_transformers(tmp_path: Path) -> None:
    theirs = llama({}, tied=False)
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("model-*-of-*.safetensors"))) > 2
    assert difference(load_model(tmp_path), their_logits(theirs)) < TOLERANCE


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
def test_transformers_loads_what_we_save(
    fields: dict[str, Any], tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model, tokenizer = written(tmp_path, random_gpt, fields)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval()
    assert difference(model, their_logits(theirs)) < TOLERANCE
    assert theirs.generation_config.eos_token_id == tokenizer.eot_id
    # once more around
    theirs.save_pretrained(tmp_path / "again")
    again = load_model(tmp_path / "again")
    assert again.config == model.config
    for name, w in model.weights().items():
        assert mx.array_equal(again.weights()[name], w)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_bfloat16_of_transformers_is_read_bit_for_bit(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    theirs = llama({}, tied=True).to(torch.bfloat16)
    with torch.no_grad():
        theirs.model.embed_tokens.weight[0, :3] = torch.tensor([1e38, -0.0, 70000.0])
    theirs.save_pretrained(tmp_path)
    weights = dict(open_checkpoint(tmp_path).weights())
    for name, parameter in theirs.state_dict().items():
        if name != "lm_head.weight":
            bits = parameter.view(torch.int16).numpy().view(np.uint16)
            assert np.array_equal(np.array(weights[name].view(mx.uint16)), bits), name


# A model that others trained


@pytest.fixture
def stories(shared_data: Path) -> Path:
    folder = shared_data / "checkpoints" / "stories260K-hf"
    if not folder.is_dir():
        pytest.skip(f"needs {os.path.relpath(folder)}")
    return folder


def test_a_published_checkpoint_gives_its_known_text_and_loss(stories: Path) -> None:
    golden = json.loads((stories / "golden.json").read_text())
    model, ids = load_model(stories), golden["greedy_ids"]
    logits = model(mx.array([ids[:-1]]))[0].astype(mx.float32)
    known = golden["logits_last_first8_at_pos31"]
    np.testing.assert_allclose(np.array(logits[31, :8]), known, atol=1e-4)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    count = len(golden["nll_first31"])
    nll = [-logprobs[t, ids[t + 1]].item() for t in range(count)]
    np.testing.assert_allclose(nll, golden["nll_first31"], atol=1e-4)
    params = SamplingParams(temperature=0, max_tokens=len(ids) - 1)
    assert [t.token_id for t in generate(model, ids[:1], params)] == ids[1:]


def test_what_the_readme_says_of_loading_holds(
    tmp_path: Path, random_gpt: Callable[..., GPT]
) -> None:
    model, tokenizer = written(tmp_path, random_gpt, {})
    loaded, same = load(str(tmp_path))
    assert loaded.config == model.config
    assert same.encode("the cat") == tokenizer.encode("the cat")
