"""Models of the Hugging Face Hub: what is downloaded, when the cache is enough, what is said."""

import errno
import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from fake_hub import FakeHub, commit_of, files_of, point_to

from mlxgpt.checkpoint import load, open_checkpoint, save_model
from mlxgpt.checkpoint.hub import HubModel, download
from mlxgpt.errors import CheckpointError
from mlxgpt.model import GPT
from mlxgpt.text import train_char

Make = Callable[..., GPT]
TEXT = "abcdefghij"
NAME = "someone/tiny"


@pytest.fixture
def saved(tmp_path: Path, random_gpt: Make) -> Path:
    tokenizer = train_char([TEXT])
    save_model(tmp_path / "m", random_gpt(vocab_size=tokenizer.vocab_size), tokenizer)
    return tmp_path / "m"


@pytest.fixture
def hub(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between attempts
    with FakeHub({NAME: {"main": files_of(saved)}}).running() as running:
        point_to(running.address, tmp_path / "cache", monkeypatch)
        yield running


def refused(location: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(location)
    message = str(caught.value)
    assert "\n" not in message
    return message


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", HubModel("a/b")),
        ("hf://a/b", HubModel("a/b")),
        ("a/b@v1.0", HubModel("a/b", None, "v1.0")),
        ("a-1/b.c_d@refs/pr/1", HubModel("a-1/b.c_d", None, "refs/pr/1")),
        ("a/b/c-Q4_0.gguf", HubModel("a/b", "c-Q4_0.gguf")),
        ("a/b/sub/c.GGUF@main", HubModel("a/b", "sub/c.GGUF", "main")),
        *((odd, None) for odd in ("a", "a/b/c", "a b/c", "a/b@", "/a/b", "a/b/", "a/../b", "")),
    ],
)
def test_names_of_models(text: str, expected: HubModel | None) -> None:
    assert HubModel.parse(text) == expected
    assert expected is None or str(expected) == text.removeprefix("hf://")


def test_a_model_is_downloaded_once(hub: FakeHub, saved: Path) -> None:
    hub.repositories[NAME]["main"] |= {
        "pytorch_model.bin": b"pickle", "modeling.py": b"code", "README.md": b"words",
        "sub/model.safetensors": b"other", "consolidated.safetensors": b"the same once more",
    }  # fmt: skip
    model, tokenizer = load(NAME)
    here, here_tokenizer = load(saved)
    assert isinstance(model, GPT)
    assert isinstance(here, GPT)
    assert tokenizer == here_tokenizer
    weights = model.weights()
    assert all(mx.array_equal(weights[n], w).item() for n, w in here.weights().items())
    assert sorted(hub.downloads()) == sorted(files_of(saved))
    load(NAME)
    assert len(hub.downloads()) == len(files_of(saved))


def test_the_cache_is_enough_where_the_hub_cannot_be_reached(
    hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = open_checkpoint(NAME).path
    caplog.set_level(logging.WARNING, "mlxgpt")
    point_to("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    assert open_checkpoint(NAME).path == path
    assert "no connection" in caplog.text
    assert "using what was downloaded before" in caplog.text
    caplog.clear()
    offline(monkeypatch)
    assert open_checkpoint(NAME).path == path
    assert caplog.text == ""


def test_without_a_cache_one_line_says_what_to_do(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point_to("http://127.0.0.1:9", tmp_path / "cache", monkeypatch)
    assert f"{NAME} is not in the cache, and the Hub was of no help" in refused(NAME)
    offline(monkeypatch)
    assert "HF_HUB_OFFLINE is set: unset it once" in refused(NAME)
    assert "HF_HUB_OFFLINE is set" in refused(f"{NAME}/a.gguf")


def test_half_a_model_in_the_cache_is_none(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    path = open_checkpoint(NAME).path
    (path / "model.safetensors").unlink()
    offline(monkeypatch)
    assert f"{NAME} is not in the cache, or not complete" in refused(NAME)


def test_what_another_tool_left_in_the_cache_is_no_model(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import hf_hub_download

    hf_hub_download(NAME, "config.json")
    offline(monkeypatch)
    assert f"{NAME} is not in the cache, or not complete" in refused(NAME)


def test_a_revision(hub: FakeHub, saved: Path) -> None:
    other = files_of(saved) | {"generation_config.json": b'{"eos_token_id": 3}'}
    hub.repositories[NAME] |= {"v1": other, "refs/pr/1": other}
    assert open_checkpoint(NAME).stop_ids != {3}
    for revision in ("v1", "refs/pr/1", commit_of(other)):
        assert 3 in open_checkpoint(f"{NAME}@{revision}").stop_ids
    asked = len(hub.asked)
    assert 3 in open_checkpoint(f"{NAME}@{commit_of(other)}").stop_ids
    assert len(hub.asked) == asked  # a commit that is here is the commit
    del hub.repositories[NAME]["v1"]  # what was taken back is not used any more
    assert f"{NAME} on the Hub has no revision v1" in refused(f"{NAME}@v1")


def test_what_is_new_on_the_hub_is_fetched(hub: FakeHub) -> None:
    before = open_checkpoint(NAME)
    hub.repositories[NAME]["main"] |= {"generation_config.json": b'{"eos_token_id": 3}'}
    after = open_checkpoint(NAME)
    assert 3 in after.stop_ids
    assert 3 not in before.stop_ids


def test_what_the_hub_refuses(hub: FakeHub) -> None:
    hub.repositories["someone/gated"] = dict(hub.repositories[NAME])
    hub.gated.add("someone/gated")
    hub.refused = {"someone/no": (401, "RepoNotFound"), "someone/closed": (403, "GatedRepo"),
                   "someone/down": (500, None), "someone/mine": (403, None)}  # fmt: skip
    for name in ("someone/none", "someone/no"):
        message = refused(name)
        assert f"there is no {name} on the Hub, nor a file or folder of that name" in message
        assert "`hf auth login`" in message
    for name in ("someone/gated", "someone/closed"):
        assert f"accept its licence on {hub.address}/{name} and log in" in refused(name)
    assert "(500)" in refused("someone/down")
    assert "refuses someone/mine to this login (403)" in refused("someone/mine")
    assert "nor a name that the Hub allows" in refused("someone/a..b")


def test_a_private_model_that_is_in_the_cache_stays_usable(hub: FakeHub) -> None:
    path = open_checkpoint(NAME).path
    hub.refused[NAME] = (401, "RepoNotFound")
    assert open_checkpoint(NAME).path == path


def test_a_connection_that_breaks_is_taken_up_again(hub: FakeHub, saved: Path) -> None:
    hub.cut["model.safetensors"] = 2
    path = open_checkpoint(NAME).path
    assert (path / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()
    assert hub.downloads().count("model.safetensors") == 3


def test_a_download_that_was_given_up_goes_on_when_it_is_started_again(hub: FakeHub) -> None:
    hub.cut["model.safetensors"] = 10**6
    message = refused(NAME)
    assert f"the download of {NAME} was interrupted" in message
    assert "start it again" in message
    hub.cut = {}
    hub.asked.clear()
    assert isinstance(load(NAME)[0], GPT)
    assert hub.downloads() == ["model.safetensors"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.ENOSPC, "the disk is full; make room for"), (errno.EACCES, "HF_HOME says where")],
)
def test_a_disk_that_refuses(
    number: int, expected: str, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub

    def full(*_: object, **settings: object) -> str:
        raise OSError(number, "no")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    message = refused(NAME)
    assert message.startswith(f"cannot download {NAME}: ")
    assert expected in message


def test_pickle_is_refused_before_anything_is_downloaded(hub: FakeHub) -> None:
    hub.repositories["someone/old"] = {"main": {"config.json": b"{}", "pytorch_model.bin": b"x"}}
    assert "as pickle only (pytorch_model.bin), which can run any code" in refused("someone/old")
    hub.repositories["someone/data"] = {"main": {"README.md": b"x"}}
    assert "has no weights as safetensors or GGUF" in refused("someone/data")
    hub.repositories["someone/image"] = {"main": {"unet.safetensors": b"x"}}
    assert "it has no config.json" in refused("someone/image")
    assert hub.downloads() == []


def test_gguf_files_are_named_or_the_only_one(hub: FakeHub) -> None:
    header = b"GGUF\x03\0\0\0"
    hub.repositories["someone/q"] = {
        "main": {"a-Q4_0.gguf": header, "a-Q8_0.gguf": header, "config.json": b"{}"}
    }
    message = refused("someone/q@main")
    assert (
        "2 GGUF files; name one, as in someone/q/a-Q4_0.gguf@main: a-Q4_0.gguf, a-Q8_0" in message
    )
    assert hub.downloads() == []
    chosen = open_checkpoint("someone/q/a-Q8_0.gguf")
    assert (chosen.format, chosen.path.name) == ("GGUF", "a-Q8_0.gguf")
    assert hub.downloads() == ["a-Q8_0.gguf"]
    assert "no file a-Q8.gguf; did you mean 'a-Q8_0.gguf'?" in refused("someone/q/a-Q8.gguf")
    del hub.repositories["someone/q"]["main"]["a-Q8_0.gguf"]
    assert open_checkpoint("someone/q").path.name == "a-Q4_0.gguf"


def test_gguf_files_in_the_cache(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["someone/q"] = {"main": {"a.gguf": b"GGUF\x03", "b.gguf": b"GGUF\x03"}}
    path = open_checkpoint("someone/q/a.gguf").path
    offline(monkeypatch)
    assert open_checkpoint("someone/q/a.gguf").path == path
    assert open_checkpoint("someone/q").path == path
    assert "HF_HUB_OFFLINE" in refused("someone/q/b.gguf")


def test_an_adapter_is_downloaded_for_what_it_is(hub: FakeHub) -> None:
    files = {
        "adapter_config.json": b'{"base_model_name_or_path": "someone/tiny"}',
        "adapter_model.safetensors": b"x",
        "optimizer.pt": b"x",
    }
    hub.repositories["someone/lora"] = {"main": files}
    message = refused("someone/lora")
    assert "is an adapter, no model" in message
    assert "made for (someone/tiny); generate and eval take the adapter" in message
    folder = download(HubModel("someone/lora"))
    assert sorted(files_of(folder)) == ["adapter_config.json", "adapter_model.safetensors"]


def test_what_exists_here_wins(hub: FakeHub, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "someone").mkdir()
    shutil.copytree(saved, tmp_path / NAME)
    assert open_checkpoint(NAME).path == Path(NAME)
    assert hub.asked == []
    assert open_checkpoint(f"hf://{NAME}").path != Path(NAME)
    assert "did you mean someone/tiny? (hf://someone/tony is" in refused("someone/tony")
