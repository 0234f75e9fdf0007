"""A model of the Hub is described before it is downloaded, from its headers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import FakeHub, files_of, point_to

from mlxgpt.checkpoint import open_checkpoint, save_model
from mlxgpt.checkpoint.hub import HubModel, download
from mlxgpt.checkpoint.hub_preview import to_look_at
from mlxgpt.checkpoint.safetensors import read_header
from mlxgpt.checkpoint.summary import Summary, summarize
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT
from mlxgpt.text import train_char

NAME, WEIGHTS = "someone/tiny", "model.safetensors"


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_char(["abcdefghij"])
    save_model(tmp_path / "m", random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return tmp_path / "m"


@pytest.fixture
def hub(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.chdir(tmp_path)
    with FakeHub({NAME: {"main": files_of(saved)}}).running() as running:
        point_to(running.address, tmp_path / "cache", monkeypatch)
        yield running


def looked_at(location: str | Path) -> tuple[Summary, Path, bool]:
    with to_look_at(location) as look:
        return summarize(open_checkpoint(look.path)), look.path, look.is_here


def test_it_is_described_as_if_it_were_here(hub: FakeHub, saved: Path) -> None:
    here, path, is_here = looked_at(saved)
    assert (path, is_here) == (saved, True)
    there, stand_in, is_here = looked_at(NAME)
    assert not is_here
    assert not stand_in.exists()
    assert there == here
    assert there.tokenizer is not None


def test_nothing_comes_behind_the_header(hub: FakeHub, saved: Path) -> None:
    with to_look_at(NAME) as look:
        file = look.path / WEIGHTS
        assert read_header(file) == read_header(saved / WEIGHTS)
        content, real = file.read_bytes(), (saved / WEIGHTS).read_bytes()
    header = 8 + int.from_bytes(real[:8], "little")
    assert len(content) == len(real)
    assert content[:header] == real[:header]
    assert not any(content[header:])


def test_what_is_in_the_cache_is_looked_at_there(hub: FakeHub, tmp_path: Path) -> None:
    folder = download(HubModel(NAME))
    hub.asked.clear()
    _, path, is_here = looked_at(NAME)
    assert (path, is_here, hub.asked) == (folder, True, [])


def test_a_look_does_not_pass_for_a_download(hub: FakeHub) -> None:
    looked_at(NAME)
    weights = list(open_checkpoint(NAME).weights())
    assert any(bool(array.any().item()) for _, array in weights)


def test_a_gguf_file_is_described_by_its_beginning(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf: Any = pytest.importorskip("gguf")
    import numpy as np

    writer = gguf.GGUFWriter(str(tmp_path / "a.gguf"), "odd")
    writer.add_tensor("token_embd.weight", np.ones((40, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    content = (tmp_path / "a.gguf").read_bytes()
    hub.repositories["someone/packed"] = {"main": {"a.gguf": content}}
    monkeypatch.setattr("mlxgpt.checkpoint.hub_preview._GGUF_START", 400)
    with to_look_at("someone/packed") as look:
        assert look.path.read_bytes() == content[:400] + bytes(len(content) - 400)
        checkpoint = open_checkpoint(look.path)
        assert (checkpoint.family, checkpoint.format) == ("odd", "GGUF")
        (tensor,) = checkpoint.tensors().values()
        assert (tensor.dtype, tensor.nbytes) == ("F16", 2560)


def test_what_goes_wrong_is_one_line(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(location: str) -> str:
        with pytest.raises(CheckpointError) as caught:
            looked_at(location)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "there is no someone/else on the Hub" in refused("someone/else")
    assert "does not exist" in refused("./someone/tiny")
    hub.repositories["someone/pickle"] = {"main": {"config.json": b"{}", "model.bin": b"x"}}
    assert "pickle only" in refused("someone/pickle")
    hub.gated.add(NAME)
    assert "gated" in refused(NAME)
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused(NAME)
