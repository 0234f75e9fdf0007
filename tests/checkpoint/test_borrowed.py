"""Architectures that are not ours: run by mlx-lm with the same result, in the same safety."""

import json
import logging
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from borrowed_cases import CASES, edit, make
from mlx.utils import tree_flatten

from mlxgpt.checkpoint import BorrowedModel, load_model, load_tokenizer, open_checkpoint
from mlxgpt.checkpoint.borrowed import in_old_words, knows
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.infer import SamplingParams, generate, generate_plain
from mlxgpt.text import train_char

IDS = mx.array([[1, 5, 9, 33, 60, 2, 7, 7, 8, 9, 11, 3], [4, 40, 22, 0, 1, 1, 1, 17, 55, 6, 30, 2]])


def borrowed(path: Path, *, as_stored: bool | None = None) -> BorrowedModel:
    model = load_model(path, as_stored=as_stored)
    assert isinstance(model, BorrowedModel)
    return model


def equal(a: mx.array, b: mx.array) -> bool:
    assert np.array(a.astype(mx.float32)).std() > 0.1, "the logits are not worth comparing"
    return bool(mx.array_equal(a, b).item())


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.parametrize("model_type", CASES)
def test_it_is_the_network_of_mlx_lm(model_type: str, tmp_path: Path) -> None:
    theirs = make(tmp_path, model_type)
    model = borrowed(tmp_path)
    assert equal(model(IDS), theirs(IDS))
    assert (model.vocab, model.model_type) == (61, model_type)
    assert model.context == (None if model_type == "mamba2" else 128)


@pytest.mark.parametrize("model_type", CASES)
def test_the_cache_of_mlx_lm_changes_no_token(
    model_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setattr(sys.modules["mlxgpt.infer.language_model"], "PIECE", 4)
    theirs, prompt = make(tmp_path, model_type), IDS[0, :7].tolist()
    model = borrowed(tmp_path)
    ids = list(prompt)
    for _ in range(12):
        ids.append(int(mx.argmax(theirs(mx.array([ids]))[0, -1]).item()))
    greedy = SamplingParams(temperature=0, max_tokens=12)
    assert [t.token_id for t in generate(model, prompt, greedy)] == ids[7:]
    drawn = SamplingParams(temperature=1.5, seed=3, max_tokens=20)
    text = list(generate(model, prompt, drawn))
    assert text == list(generate_plain(model, prompt, drawn))
    assert len({t.token_id for t in text}) > 4
    assert text == list(generate(model, prompt, drawn))  # a text leaves nothing behind


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    theirs = make(tmp_path, "gemma3_text")
    session = borrowed(tmp_path).session()
    session.feed(IDS[:1, :4])
    for begin, end in ((4, 9), (9, 10), (10, 12)):
        expected = theirs(IDS[:1, :end])[:, -1]
        got = session.logits(IDS[:1, begin:end])
        np.testing.assert_allclose(np.array(got), np.array(expected), atol=1e-4)


@pytest.mark.parametrize("model_type", ["gpt2", "phi3"])
def test_a_text_ends_with_the_context(model_type: str, tmp_path: Path) -> None:
    """Beyond it mlx-lm would look up positions that are not there."""
    changes = {"n_ctx": 16, "n_positions": 16, "max_position_embeddings": 16}
    make(tmp_path, model_type, **changes)
    model = borrowed(tmp_path)
    for run in (generate, generate_plain):
        text = list(run(model, [1] * 10, SamplingParams(max_tokens=50)))
        assert len(text) == 7  # the last one is written and not read
        assert text[-1].finish_reason == "length"
        assert len(list(run(model, [1] * 10, SamplingParams(max_tokens=3)))) == 3
        assert len(list(run(model, [1] * 16, SamplingParams()))) == 1
        with pytest.raises(ConfigError, match="17 tokens; this model takes 16"):
            list(run(model, [1] * 17, SamplingParams()))
        with pytest.raises(ConfigError, match="id 61; the model has ids 0 to 60"):
            list(run(model, [61], SamplingParams()))


def test_precision_is_that_of_the_files_or_float32(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = make(tmp_path, "olmo2", mx.bfloat16)
    with caplog.at_level(logging.WARNING):
        stored = borrowed(tmp_path, as_stored=True)
    assert [r.getMessage() for r in caplog.records] == [
        "olmo2 is not an architecture of mlxgpt's own and is run by mlx-lm: it can be generated "
        "from and evaluated, but not trained, exported or given an adapter"
    ]
    assert equal(stored(IDS), theirs(IDS))
    caplog.clear()
    whole = borrowed(tmp_path, as_stored=False)
    assert {w.dtype for _, w in tree_flatten(whole.network.parameters())} == {mx.float32}
    assert "in float32 here: half precision is slow on a CPU" in caplog.text
    theirs.set_dtype(mx.float32)
    assert equal(whole(IDS), theirs(IDS))


@pytest.mark.parametrize("model_type", ["olmo2", "mixtral"])
def test_quantized_weights_stay_so_or_become_plain(
    model_type: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = make(tmp_path, model_type, intermediate_size=128)

    def how(path: str, module: nn.Module) -> bool | dict[str, int]:
        if "o_proj" in path:
            return {"bits": 8, "group_size": 32}
        return isinstance(module, nn.Linear | nn.Embedding) or path.endswith("switch_mlp.up_proj")

    nn.quantize(theirs, group_size=64, bits=4, class_predicate=how)
    settings: dict[str, Any] = {"group_size": 64, "bits": 4, "mode": "affine"}
    layers = range(CASES[model_type]["num_hidden_layers"])
    special = {f"model.layers.{i}.self_attn.o_proj": {"bits": 8, "group_size": 32} for i in layers}
    edit(tmp_path, quantization=settings | special)
    weights = dict(tree_flatten(theirs.parameters()))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), weights)

    stored = borrowed(tmp_path, as_stored=True)
    assert equal(stored(IDS), theirs(IDS))
    assert any(isinstance(m, nn.QuantizedLinear) for m in stored.network.modules())
    whole = borrowed(tmp_path, as_stored=False)
    assert "quantized weights are slow on a CPU" in caplog.text
    assert not any("scales" in module for module in whole.network.modules())
    np.testing.assert_allclose(np.array(whole(IDS)), np.array(theirs(IDS)), atol=2e-4)


NEW_WORDS = {"rope_theta": 77.0, "rope_type": "linear", "factor": 4.0}


def test_rotary_settings_in_new_words_are_heeded(tmp_path: Path) -> None:
    old = {"rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 4.0}}
    expected = make(tmp_path / "old", "olmo2", **old)(IDS)
    default = make(tmp_path / "new", "olmo2")(IDS)
    edit(tmp_path / "new", rope_parameters=NEW_WORDS)
    got = borrowed(tmp_path / "new")(IDS)
    assert equal(got, expected)
    assert not equal(got, default)


def test_other_new_words_are_told_to_mlx_lm() -> None:
    full, sliding = {"rope_type": "default", "rope_theta": 5.0}, {"rope_theta": 6.0}
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    layered = {"full_attention": full, "sliding_attention": sliding}
    got = in_old_words({"text_config": {"rope_parameters": layered, "layer_types": kinds}})
    inner = got["text_config"]
    assert (inner["rope_theta"], inner["rope_local_base_freq"]) == (5.0, 6.0)
    assert inner["sliding_window_pattern"] == 3
    assert "sliding_window_pattern" not in in_old_words({"layer_types": kinds[:-1] + kinds[:1]})
    got = in_old_words({"rope_parameters": {"rope_theta": 5.0, "partial_rotary_factor": 0.25}})
    assert (got["rotary_emb_base"], got["rotary_pct"]) == (5.0, 0.25)
    assert "rope_scaling" not in got
    assert in_old_words({"n_positions": 8})["n_ctx"] == 8
    assert in_old_words({"num_local_experts": 8})["num_experts"] == 8


@pytest.mark.parametrize(
    "name", ["xyz", "base", "cache", "switch_layers", "os", "..models.phi3", "mlx_lm", "", "olmo"]
)
def test_an_architecture_that_nobody_knows_is_refused_by_name(name: str, tmp_path: Path) -> None:
    """Some are modules of mlx-lm that are no network; `olmo` ends Python where a package lacks."""
    assert not knows(name)
    make(tmp_path, "phi3")
    edit(tmp_path, model_type=name)
    assert f"neither mlxgpt nor mlx-lm knows architecture '{name}'" in refused(tmp_path)


def test_a_tokenizer_that_is_too_large_is_refused(tmp_path: Path) -> None:
    make(tmp_path, "phi3")
    train_char(["abc"]).save(tmp_path)
    with pytest.raises(CheckpointError, match=r"260 ids, the model only 61; they do not belong"):
        load_tokenizer(open_checkpoint(tmp_path))
    make(tmp_path, "phi3", vocab_size=300)
    assert load_tokenizer(open_checkpoint(tmp_path)).vocab_size < 300


def test_what_mlx_lm_prints_is_a_note(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path, "phi3")
    edit(tmp_path, rope_scaling={"type": "odd", "long_factor": [1.0]})
    borrowed(tmp_path)
    assert capsys.readouterr().out == ""
    assert "mlx-lm: [WARNING] rope_scaling 'type' currently only supports" in caplog.text


def test_json_is_as_it_was(tmp_path: Path) -> None:
    make(tmp_path, "phi3")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    borrowed(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert json.loads(before["config.json"])["model_type"] == "phi3"
