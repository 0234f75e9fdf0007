import errno
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mlxgpt.checkpoint import (
    load,
    load_model,
    open_checkpoint,
    read_json,
    save_model,
    write_json,
)
from mlxgpt.errors import CheckpointError, MLXGPTError
from mlxgpt.model import GPT, GPTConfig
from mlxgpt.text import Tokenizer, train_char

Make = Callable[..., GPT]
TEXT = "abcdefghij"
VOCAB = train_char([TEXT]).vocab_size
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Make) -> Path:
    """A directory with an untied model and its tokenizer."""
    model = random_gpt(vocab_size=VOCAB, tie_embeddings=False)
    save_model(tmp_path / "m", model, train_char([TEXT]))
    return tmp_path / "m"


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message


def tensors_of(directory: Path) -> dict[str, mx.array]:
    tensors = mx.load(str(directory / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.eval(tensors)
    return tensors


def rewrite(directory: Path, tensors: dict[str, mx.array], **config: Any) -> None:
    """Put other tensors and settings into a directory, without an index."""
    mx.save_safetensors(str(directory / "model.safetensors"), tensors)
    (directory / "model.safetensors.index.json").unlink(missing_ok=True)
    write_json(directory / "config.json", read_json(directory / "config.json") | config)


def shard(directory: Path, parts: int = 3) -> dict[str, str]:
    """Spread the weights over files that an index names; return the index's map."""
    tensors = tensors_of(directory)
    (directory / "model.safetensors").unlink()
    files = {
        n: f"model-{i % parts + 1:05}-of-{parts:05}.safetensors" for i, n in enumerate(tensors)
    }
    for file in set(files.values()):
        part = {n: w for n, w in tensors.items() if files[n] == file}
        mx.save_safetensors(str(directory / file), part)
    write_json(directory / "model.safetensors.index.json", {"weight_map": files})
    return files


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_saved_model_comes_back_bit_for_bit(tied: bool, tmp_path: Path, random_gpt: Make) -> None:
    model, tokenizer = random_gpt(vocab_size=VOCAB, tie_embeddings=tied), train_char([TEXT])
    save_model(tmp_path / "m", model, tokenizer)
    loaded, loaded_tokenizer = load(tmp_path / "m")
    assert loaded.config == model.config == open_checkpoint(tmp_path / "m").config
    assert loaded_tokenizer == tokenizer
    assert loaded.weights().keys() == model.weights().keys()
    for name, w in model.weights().items():
        assert mx.array_equal(loaded.weights()[name].view(mx.uint32), w.view(mx.uint32)), name
    assert open_checkpoint(tmp_path / "m").stop_ids == {tokenizer.eot_id}
    names = {f.name for f in (tmp_path / "m").iterdir()}
    assert names == {
        "config.json", "generation_config.json", "model.safetensors",
        "model.safetensors.index.json", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    index = read_json(tmp_path / "m" / "model.safetensors.index.json")
    assert index["weight_map"].keys() == tensors_of(tmp_path / "m").keys()
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in model.weights().values())


def test_half_precision_is_kept_on_disk_and_named(
    tmp_path: Path, random_gpt: Make, caplog: pytest.LogCaptureFixture
) -> None:
    model = random_gpt(vocab_size=VOCAB)
    model.set_weights({n: w.astype(mx.bfloat16) for n, w in model.weights().items()})
    save_model(tmp_path, model, train_char([TEXT]))
    assert read_json(tmp_path / "config.json")["torch_dtype"] == "bfloat16"
    index = read_json(tmp_path / "model.safetensors.index.json")
    assert index["metadata"]["total_size"] == sum(w.nbytes for w in model.weights().values())
    weights = dict(open_checkpoint(tmp_path).weights())
    for name, w in model.weights().items():
        assert weights[name].dtype == mx.bfloat16
        assert mx.array_equal(weights[name].view(mx.uint16), w.view(mx.uint16))
    loaded = load_model(tmp_path)
    if mx.default_device().type == mx.DeviceType.cpu:
        assert all(w.dtype == mx.float32 for w in loaded.weights().values())
        assert "float32" in caplog.text
    assert mx.array_equal(loaded.weights()[EMBEDDING], weights[EMBEDDING])


def test_a_model_may_be_saved_over_itself_and_over_a_sharded_one(saved: Path) -> None:
    shard(saved)
    before = load_model(saved).weights()
    model, tokenizer = load(saved)
    model.set_weights({"model.norm.weight": model.model.norm.weight + 1})
    save_model(saved, model, tokenizer)
    assert [f.name for f in saved.glob("model*.safetensors")] == ["model.safetensors"]
    after = load_model(saved).weights()
    assert mx.array_equal(after["model.norm.weight"], before["model.norm.weight"] + 1)
    assert all(mx.array_equal(after[n], w) for n, w in before.items() if n != "model.norm.weight")


def test_weights_that_are_still_on_disk_may_be_saved_over_it(saved: Path) -> None:
    before = tensors_of(saved)
    lazy = mx.load(str(saved / "model.safetensors"))
    assert isinstance(lazy, dict)
    model = GPT(open_checkpoint(saved).config)
    model.set_weights(lazy)
    save_model(saved, model, train_char([TEXT]))
    after = tensors_of(saved)
    assert all(mx.array_equal(after[n], w) for n, w in before.items())


def content(directory: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in directory.iterdir()}


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_model_that_was_there(
    saved: Path, random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(saved)
    other = random_gpt(vocab_size=VOCAB + 3)
    monkeypatch.setattr(mx, "save_safetensors", refuse)
    with pytest.raises(CheckpointError, match="No space left"):
        save_model(saved, other, train_char([TEXT + "xyz"]))
    assert content(saved) == before


@pytest.mark.parametrize("place", ["mlxgpt.checkpoint.saving.write_json", "os.replace"])
def test_a_disk_that_is_full_later_leaves_the_weights(
    place: str, saved: Path, random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(saved)
    with monkeypatch.context() as m:
        m.setattr(place, refuse)
        other = random_gpt(seed=9, vocab_size=VOCAB, tie_embeddings=False)
        with pytest.raises(MLXGPTError, match="No space left"):
            save_model(saved, other, train_char([TEXT]))
    assert content(saved) == before
    load(saved)


# Tied and untied


def test_tied_without_a_head_is_the_usual_case(tmp_path: Path, random_gpt: Make) -> None:
    save_model(tmp_path, random_gpt(vocab_size=VOCAB), train_char([TEXT]))
    assert HEAD not in tensors_of(tmp_path)
    assert load_model(tmp_path).config.tie_embeddings


def test_tied_with_an_equal_head_is_read_and_with_another_refused(saved: Path) -> None:
    tensors = tensors_of(saved)
    rewrite(saved, {**tensors, HEAD: tensors[EMBEDDING]}, tie_word_embeddings=True)
    model = load_model(saved)
    assert HEAD not in model.weights()
    rewrite(saved, tensors, tie_word_embeddings=True)
    assert "lm_head.weight differs" in refused(saved)
    rewrite(saved, {**tensors, HEAD: tensors[HEAD][:-1]}, tie_word_embeddings=True)
    assert HEAD in refused(saved)


def test_untied_without_a_head_is_refused_by_its_name(saved: Path) -> None:
    tensors = tensors_of(saved)
    del tensors[HEAD]
    rewrite(saved, tensors)
    assert f"missing: '{HEAD}'" in refused(saved)


# Which files


def test_shards_are_read_and_strangers_are_not(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = load_model(saved).weights()
    caplog.clear()
    shard(saved)
    mx.save_safetensors(str(saved / "model.safetensors"), {EMBEDDING: mx.zeros((2, 2))})
    mx.save_safetensors(str(saved / "adapters.safetensors"), {"x.lora_a": mx.zeros((2, 2))})
    (saved / "tmp-7-model.safetensors").write_bytes(b"half")
    after = load_model(saved).weights()
    assert all(mx.array_equal(after[n], w) for n, w in before.items())
    (note,) = (r for r in caplog.records if r.levelno == logging.WARNING)
    assert "adapters.safetensors, model.safetensors" in note.getMessage()


def test_a_missing_shard_is_named_before_anything_is_computed(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard(saved)
    (saved / "model-00002-of-00003.safetensors").unlink()
    monkeypatch.setattr(mx, "load", None)
    assert "missing: 'model-00002-of-00003.safetensors'" in refused(saved)
    for file in saved.glob("model-*"):
        file.unlink()
    message = refused(saved)
    assert "model-00001-of-00003.safetensors" in message
    assert "model-00003-of-00003.safetensors" in message


def test_a_folder_without_weights_is_refused(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    assert "missing: 'model.safetensors'" in refused(saved)
    (saved / "model.safetensors.index.json").unlink()
    assert "missing: 'model.safetensors'" in refused(saved)


def test_missing_and_unexpected_tensors_are_listed(saved: Path) -> None:
    tensors = tensors_of(saved)
    name = "model.layers.1.mlp.up_proj.weight"
    rewrite(saved, {n: w for n, w in tensors.items() if n != name})
    assert f"missing: '{name}'" in refused(saved)
    rewrite(saved, {**tensors, "model.layers.2.x": mx.zeros(1), "extra\nline": mx.zeros(1)})
    message = refused(saved)
    assert "not part of this model: 'extra\\nline', 'model.layers.2.x'" in message
    rewrite(saved, {**tensors, "model.layers.0.self_attn.rotary_emb.inv_freq": mx.zeros(4)})
    load_model(saved)  # old transformers stored what follows from the config


def test_a_tensor_in_two_shards_is_refused(saved: Path) -> None:
    files = shard(saved)
    file = next(f for f in files.values() if f != files[EMBEDDING])
    part = mx.load(str(saved / file))
    assert isinstance(part, dict)
    mx.eval(part)
    mx.save_safetensors(str(saved / file), {**part, EMBEDDING: mx.zeros((VOCAB, 32))})
    assert f"'{EMBEDDING}' stands in" in refused(saved)


@pytest.mark.parametrize(
    "weight_map",
    [None, [], {}, "model.safetensors", {EMBEDDING: "../m/model.safetensors"}, {EMBEDDING: ".."},
     {EMBEDDING: "/etc/passwd"}, {EMBEDDING: ""}, {EMBEDDING: 5}, {EMBEDDING: "x" * 5000},
     {EMBEDDING: "a\0b"}, {EMBEDDING: "\ud800"}, {EMBEDDING: None}, {EMBEDDING: "config.json"}],
    ids=lambda m: ascii(m)[:30],
)  # fmt: skip
def test_an_odd_index_is_refused(weight_map: Any, saved: Path) -> None:
    text = json.dumps({"weight_map": weight_map})
    (saved / "model.safetensors.index.json").write_text(text)
    refused(saved)


def test_wrong_shapes_dtypes_and_numbers_are_refused(saved: Path) -> None:
    tensors = tensors_of(saved)
    gain = "model.norm.weight"
    for bad, part in (
        (tensors[gain][:-1], "[31]"),
        (tensors[gain][None], "[1, 32]"),
        (tensors[gain].astype(mx.int32), "I32"),
        (tensors[gain].astype(mx.uint8), "U8"),
        (mx.where(mx.arange(32) == 31, float("nan"), tensors[gain]), "NaN"),
        (mx.where(mx.arange(32) == 0, -float("inf"), tensors[gain]), "NaN or infinite"),
    ):
        rewrite(saved, {**tensors, gain: bad})
        message = refused(saved)
        assert gain in message
        assert part in message


@pytest.mark.parametrize(
    "change",
    [{"num_hidden_layers": 2_000_000_000}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1},
     {"vocab_size": 2_000_000_000}, {"hidden_size": 2**31 - 1}, {"intermediate_size": 10**9},
     {"head_dim": 10**9}, {"num_attention_heads": 10**8, "num_key_value_heads": 10**8},
     {"max_position_embeddings": 0}, {"vocab_size": 10**30}],
    ids=str,
)  # fmt: skip
@pytest.mark.timeout(20)  # rather than fill the memory of the machine, should it fail
def test_a_config_of_another_size_is_refused_without_making_it(change: Any, saved: Path) -> None:
    write_json(saved / "config.json", read_json(saved / "config.json") | change)
    refused(saved)


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "model.safetensors.index.json", "model.safetensors"],
)
def test_a_file_cut_in_half_is_refused(name: str, saved: Path) -> None:
    content = (saved / name).read_bytes()
    for length in (0, 1, len(content) // 2, len(content) - 2):
        (saved / name).write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=name):
            open_checkpoint(saved).stop_ids if name == "generation_config.json" else load_model(
                saved
            )


def test_what_is_no_model_directory_is_said(tmp_path: Path, saved: Path) -> None:
    assert "does not exist" in refused(tmp_path / "none")
    assert "is a file" in refused(saved / "config.json")
    (tmp_path / "empty").mkdir()
    assert "no config.json" in refused(tmp_path / "empty")
    for odd in ("x" * 5000, "~nobody-of-this-name/x", "a\0b"):
        with pytest.raises(CheckpointError):
            load_model(odd)


# Tokenizer and model


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path, random_gpt: Make) -> None:
    save_model(tmp_path, random_gpt(vocab_size=VOCAB), train_char([TEXT]))
    train_char([TEXT + "k"]).save(tmp_path)
    with pytest.raises(CheckpointError, match=rf"{VOCAB + 1} ids, the model only {VOCAB}"):
        load(tmp_path)


def test_a_model_may_be_larger_than_its_tokenizer(tmp_path: Path, random_gpt: Make) -> None:
    save_model(tmp_path, random_gpt(vocab_size=VOCAB + 20), train_char([TEXT]))
    model, tokenizer = load(tmp_path)
    assert isinstance(tokenizer, Tokenizer)
    assert model.config == GPTConfig(
        n_layer=2, n_embd=32, n_head=4, n_kv_head=2, vocab_size=VOCAB + 20, max_seq_len=16
    )


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [(1, [1, 6], {1, 6}), ([1, 2], 6, {1, 2, 6}), (None, 6, {6}), (1, None, {1}),
     (1, "absent", {1}), (None, "absent", set())],
)  # fmt: skip
def test_stop_ids_are_those_of_both_files(
    config: Any, generation: Any, ids: set[int], saved: Path
) -> None:
    raw = read_json(saved / "config.json")
    write_json(saved / "config.json", raw | {"eos_token_id": config})
    if generation == "absent":
        (saved / "generation_config.json").unlink()
    else:
        write_json(saved / "generation_config.json", {"eos_token_id": generation})
    assert open_checkpoint(saved).stop_ids == ids
