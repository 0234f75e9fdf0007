"""What a user may type for a model, and what is said where there is none."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mlxgpt.checkpoint import load, open_checkpoint, save_model
from mlxgpt.checkpoint.opening import local_path
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT
from mlxgpt.text import train_char

GGUF = b"GGUF\x03\0\0\0"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, which is also the home; nothing may ask the Hub."""

    def never(*_: object) -> Path:
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr("mlxgpt.checkpoint.opening.download", never)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(here: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abc"])
    save_model(here / "runs" / "demo-1", random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return Path("runs", "demo-1")


def refused(location: str | Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(location)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_directory_by_whatever_name(model: Path, here: Path) -> None:
    (here / "owner").symlink_to(here / "runs")
    for name in (
        model, str(model), f"./{model}", f"{model}/", "~/runs/demo-1", "owner/demo-1", here / model
    ):  # fmt: skip
        checkpoint = open_checkpoint(name)
        assert checkpoint.format == "safetensors"
        assert checkpoint.path.samefile(model)
        assert isinstance(load(name)[0], GPT)


def test_a_gguf_file_is_known_by_its_first_bytes(here: Path) -> None:
    for name in ("a.gguf", "b.bin", "c"):
        (here / name).write_bytes(GGUF)
        checkpoint = open_checkpoint(name)
        assert (checkpoint.format, checkpoint.path) == ("GGUF", Path(name))


def test_a_directory_with_one_gguf_file_is_that_file(here: Path) -> None:
    (here / "d").mkdir()
    (here / "d" / "x.GGUF").write_bytes(GGUF)
    (here / "d" / "README.md").write_text("words")
    assert open_checkpoint("d").path == Path("d", "x.GGUF")
    (here / "d" / "config.json").write_text("{}")
    assert open_checkpoint("d").format == "GGUF"
    (here / "d" / "model.safetensors").write_bytes(b"")
    assert open_checkpoint("d").format == "safetensors"
    (here / "d" / "model.safetensors").unlink()
    (here / "d" / "a.gguf").write_bytes(GGUF)
    assert "d holds 2 GGUF files; give one of them: a.gguf, x.GGUF" in refused("d")


def test_an_adapter_is_no_model(model: Path) -> None:
    adapter = model.parent / "tuned"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"model": "some/base"}')
    (adapter / "adapters.safetensors").write_bytes(b"")
    message = refused(adapter)
    assert f"{adapter} is an adapter, no model" in message
    assert "made for (some/base); generate and eval take the adapter with --adapter" in message
    shutil.copy(model / "config.json", adapter)
    assert "is an adapter" in refused(adapter)
    shutil.copy(adapter / "adapter_config.json", model)
    assert open_checkpoint(model).format == "safetensors"
    assert local_path(str(adapter)) == adapter


def test_a_run_that_has_not_saved_yet(model: Path) -> None:
    (model / "run.yaml").write_text("steps: 1")
    assert open_checkpoint(model).format == "safetensors"
    (model / "model.safetensors").unlink()
    assert "has not saved a model yet" in refused(model)
    (model / "config.json").unlink()
    assert f"mlxgpt train --resume {model}" in refused(model)


def test_pickle_is_not_opened(here: Path) -> None:
    content = pickle.dumps({"a": 1})
    for name in ("pytorch_model.bin", "model.pt", "m.PTH", "anything"):
        (here / name).write_bytes(content)
        assert f"{name} is pickle, which can run any code" in refused(name)
    (here / "zipped.pt").write_bytes(b"PK\x03\x04")
    assert "zipped.pt is pickle" in refused("zipped.pt")
    (here / "d").mkdir()
    (here / "d" / "pytorch_model.bin").write_bytes(content)
    assert "as pickle (pytorch_model.bin)" in refused("d")


def test_other_files(model: Path, here: Path) -> None:
    message = refused(model / "model.safetensors")
    assert f"is a file of a model; give its directory, {model}" in message
    (here / "notes.txt").write_text("hello")
    assert "notes.txt is a file, but no GGUF file" in refused("notes.txt")
    (here / "a.gguf").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "Git LFS pointer" in refused("a.gguf")
    (here / "a.gguf").write_bytes(b"GGML")
    assert "a.gguf is no GGUF file" in refused("a.gguf")
    (here / "a.gguf").write_bytes(b"")
    assert "a.gguf is empty" in refused("a.gguf")


def test_a_half_download_is_recognised(here: Path) -> None:
    traces = here / "d" / ".cache" / "huggingface" / "download"
    traces.mkdir(parents=True)
    assert refused("d").endswith("it has no config.json")
    (traces / "x.incomplete").write_bytes(b"")
    assert "a download was interrupted" in refused("d")


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("runs/demo-2", "did you mean runs/demo-1? (hf://runs/demo-2 is the one on the Hub)"),
        ("runs/demo/1", "did you mean runs/demo-1?"),
        ("./rums/demo-1", "did you mean runs/demo-1?"),
        ("run/demo-1/x", "did you mean runs/demo-1?"),
        ("~/runs/demo-7", "did you mean"),
        ("demo", "expected a run, a model directory, a GGUF file, or owner/name"),
        ("a/b/c/d", "does not exist; expected a run"),
        ("../x/y.gguf", "does not exist"),
        ("runs/demo-1/x.gguf", "does not exist"),
        ("", "an empty name is no model"),
        ("https://example.org/a/b", "is an address"),
        ("a\0b", "does not exist"),
        ("x" * 5000, "does not exist"),
        ("broken", "is a link to something that does not exist"),
    ],
)
def test_what_does_not_exist(typed: str, expected: str, model: Path) -> None:
    Path("broken").symlink_to("nowhere")
    assert expected in refused(typed)


def test_what_is_left_is_a_name_on_the_hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def remember(name: object) -> Path:
        asked.append(str(name))
        return here

    monkeypatch.setattr("mlxgpt.checkpoint.opening.download", remember)
    names = ["a/b", "a/b@v1", "a/b@refs/pr/1", "a/b/c.gguf", "a/b/c.gguf@v1"]
    for name in names:
        assert local_path(name) == here
    (here / "a").mkdir()
    assert local_path("hf://a/b") == here
    assert asked == [*names, "a/b"]


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "config.json")
    for path in (tmp_path / "pipe.gguf", tmp_path / "folder"):
        with pytest.raises(CheckpointError, match="no regular file"):
            open_checkpoint(path)
