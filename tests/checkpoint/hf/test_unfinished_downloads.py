"""Folders that are half there, or hold their weights in another form: one line says which."""

import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxgpt.checkpoint import load, open_checkpoint, read_json, save_model, write_json
from mlxgpt.checkpoint.hf import HFDirectory
from mlxgpt.errors import CheckpointError, MLXGPTError
from mlxgpt.model import GPT
from mlxgpt.text import train_char

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 4096\n"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abcdefghij"])
    save_model(tmp_path / "m", random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return tmp_path / "m"


def refused(directory: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(directory)
    message = str(caught.value)
    assert str(directory) in message
    assert "\n" not in message
    return message


FILES = ["config.json", WEIGHTS, INDEX, "tokenizer.json", "generation_config.json"]


@pytest.mark.parametrize("name", FILES)
def test_pointers_and_empty_files_are_told_from_content(name: str, saved: Path) -> None:
    def message() -> str:
        with pytest.raises(MLXGPTError) as caught:
            checkpoint = open_checkpoint(saved)
            _ = checkpoint.stop_ids
            load(saved)
        assert name in str(caught.value)
        return str(caught.value)

    (saved / name).write_bytes(POINTER)
    assert "git lfs pull" in message()
    (saved / name).write_bytes(b"")
    assert "is empty" in message()
    assert "download it again" in message()


@pytest.mark.parametrize(
    "place", [".", ".cache/huggingface/download", ".cache/huggingface/download/sub"]
)
def test_an_interrupted_download_is_recognised(place: str, saved: Path) -> None:
    (saved / WEIGHTS).unlink()
    assert "download was" not in refused(saved)
    (saved / place).mkdir(parents=True, exist_ok=True)
    (saved / place / "abc.0123.incomplete").write_bytes(b"half")
    message = refused(saved)
    assert f"missing: '{WEIGHTS}'" in message
    assert "a download was interrupted" in message
    assert "download it again" in message


def test_a_complete_model_opens_with_leftovers_beside_it(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (saved / ".cache" / "huggingface" / "download").mkdir(parents=True)
    (saved / ".cache" / "huggingface" / "download" / "x.incomplete").write_bytes(b"")
    (saved / "pytorch_model.bin").write_bytes(b"\x80")
    with caplog.at_level(logging.WARNING):
        load(saved)
    assert not caplog.records


def test_absent_shards_mean_a_download_that_is_not_complete(saved: Path) -> None:
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    (saved / WEIGHTS).rename(saved / names[0])
    tensors = list(read_json(saved / INDEX)["weight_map"])
    write_json(saved / INDEX, {"weight_map": {n: names[i % 3] for i, n in enumerate(tensors)}})
    message = refused(saved)
    assert f"missing: '{names[1]}', '{names[2]}'" in message
    assert "the model is not complete: download it again" in message


def test_links_into_a_cache_that_is_gone(saved: Path) -> None:
    (saved / WEIGHTS).unlink()
    (saved / WEIGHTS).symlink_to("../../blobs/0123")
    message = refused(saved)
    assert f"missing: '{WEIGHTS}'" in message
    assert "cache are gone" in message


class Opened(RuntimeError):
    pass


class Trap:
    """Raises when it is unpickled."""

    def __reduce__(self) -> tuple:
        return _spring, ()


def _spring() -> None:
    raise Opened


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "consolidated.00.pth", "model.pt",
     "epoch=1.ckpt", "weights.pkl"],
)  # fmt: skip
def test_pickle_is_never_opened_and_the_reason_is_said(name: str, saved: Path) -> None:
    trap = pickle.dumps(Trap())
    with pytest.raises(Opened):
        pickle.loads(trap)
    (saved / WEIGHTS).unlink()
    (saved / INDEX).unlink()
    (saved / name).write_bytes(trap)
    message = refused(saved)
    assert name in message
    assert "run any code" in message
    assert "save_pretrained" in message


@pytest.mark.parametrize(
    ("name", "part"),
    [("tf_model.h5", "TensorFlow"), ("flax_model.msgpack", "Flax"), ("weights.npz", "NumPy"),
     ("model-q4_0.gguf", "give ")],
)  # fmt: skip
def test_other_forms_are_named(name: str, part: str, saved: Path) -> None:
    (saved / WEIGHTS).unlink()
    (saved / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=part) as caught:
        HFDirectory(saved).weights()
    assert name in str(caught.value)


def test_code_beside_a_model_is_not_run(saved: Path, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n"
    for name in ("modeling_evil.py", "model.py", "__init__.py", "tokenization_evil.py"):
        (saved / name).write_text(code)
    raw = read_json(saved / "config.json")
    classes = {"AutoConfig": "modeling_evil.C", "AutoModelForCausalLM": "modeling_evil.M"}
    write_json(saved / "config.json", raw | {"auto_map": classes, "model_file": "model.py"})
    raw = read_json(saved / "tokenizer_config.json")
    auto = {"AutoTokenizer": ["tokenization_evil.T", None]}
    write_json(saved / "tokenizer_config.json", raw | {"auto_map": auto})
    model, _ = load(saved)
    assert isinstance(model, GPT)
    assert not (tmp_path / "ran").exists()


def test_a_run_that_has_saved_nothing_yet_is_not_called_a_download(saved: Path) -> None:
    (saved / WEIGHTS).unlink()
    message = refused(saved)
    assert f"missing: '{WEIGHTS}'" in message
    assert "download" not in message.removeprefix(str(saved))
