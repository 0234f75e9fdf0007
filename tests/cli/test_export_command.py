"""`mlxgpt export` as it is typed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from typer.testing import CliRunner

from mlxgpt.checkpoint import (
    Adapter,
    load,
    load_model,
    open_checkpoint,
    read_adapter,
    save_model,
    write_adapter,
)
from mlxgpt.checkpoint.adapters import LowRank
from mlxgpt.cli.app import app
from mlxgpt.errors import MLXGPTError
from mlxgpt.model import GPT
from mlxgpt.text import train_bpe
from mlxgpt.train import RunDirectory, assemble

TEXT = "the cat sat on the mat, and the dog lay down by the fire; 3 + 4 = 7\n" * 20
MODULE = "model.layers.1.mlp.up_proj"


@pytest.fixture
def model(tmp_path: Path, random_gpt: Callable[..., GPT]) -> Path:
    tokenizer = train_bpe([TEXT], 300)
    network = random_gpt(vocab_size=tokenizer.vocab_size, n_embd=64)
    save_model(tmp_path / "model", network, tokenizer)
    return tmp_path / "model"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    change = LowRank(a=mx.ones((64, 2)), b=mx.ones((2, 192)) * 0.01, scale=3.0)
    write_adapter(
        tmp_path / "adapter", Adapter(fine_tune_type="lora", modules={MODULE: change}), "mlx-lm"
    )
    return tmp_path / "adapter"


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(app, ["export", *map(str, words)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def refused(*words: str | Path) -> str:
    with pytest.raises(MLXGPTError) as caught:
        run(*words)
    return str(caught.value)


def test_a_quantized_directory(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = run(model, "--to", "hf", "--quantize", 4, "--group-size", 32, "--dtype", "bf16",
               "--out", out)  # fmt: skip
    assert str(out) in said
    config = json.loads((out / "config.json").read_text())
    assert config["quantization"] == {"group_size": 32, "bits": 4, "mode": "affine"}
    assert config["torch_dtype"] == "bfloat16"
    assert "4 bits in groups of 32, else bfloat16" in (out / "README.md").read_text()
    load(out)


@pytest.mark.parametrize("out", ["folder", "one.gguf"])
def test_gguf_is_a_folder_or_a_file(out: str, model: Path, tmp_path: Path) -> None:
    said = run(model, "--to", "gguf", "--quantize", 8, "--out", tmp_path / out)
    file = tmp_path / ("one.gguf" if out == "one.gguf" else "folder/model-Q8_0.gguf")
    assert file.read_bytes()[:4] == b"GGUF"
    assert str(file) in said
    assert (tmp_path / "folder" / "README.md").exists() == (out == "folder")
    assert {q.bits for q in open_checkpoint(file).quantization.values()} == {8}


def test_an_adapter_is_fused(model: Path, adapter: Path, tmp_path: Path) -> None:
    run(model, "--to", "hf", "--fuse", adapter, "--out", tmp_path / "out")
    before, after = (load_model(p).weights()[f"{MODULE}.weight"] for p in (model, tmp_path / "out"))
    assert mx.allclose(after, before + 2 * 0.01 * 3.0, atol=1e-6)
    assert "| adapter | adapter |" in (tmp_path / "out" / "README.md").read_text()


def test_an_adapter_changes_its_form_and_comes_back(adapter: Path, tmp_path: Path) -> None:
    run(adapter, "--to", "peft", "--base", "me/mine", "--out", tmp_path / "peft")
    settings = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert settings["peft_type"] == "LORA"
    assert settings["base_model_name_or_path"] == "me/mine"
    run(tmp_path / "peft", "--to", "mlx-lm", "--out", tmp_path / "back")
    one, two = (read_adapter(p).modules[MODULE] for p in (adapter, tmp_path / "back"))
    assert mx.allclose(one.scale * one.a @ one.b, two.scale * two.a @ two.b)


def test_the_card_of_a_run_says_what_it_was_trained_on(model: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "secret" / "poems.txt"
    corpus.parent.mkdir()
    corpus.write_text(TEXT)
    config = assemble(None, None, {"data.corpus": str(corpus), "steps": 7}, [])
    run_directory = RunDirectory(tmp_path / "run")
    run_directory.create(config)
    run_directory.log({"step": 5, "loss": 2.5})
    run_directory.log({"step": 5, "val_loss": 2.25, "bits_per_byte": 1.75})
    for file in model.iterdir():
        (tmp_path / "run" / file.name).write_bytes(file.read_bytes())
    run(tmp_path / "run", "--to", "hf", "--out", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| data | poems.txt |" in card
    assert "secret" not in card
    assert "| steps | 5 of 7, 15,360 tokens |" in card
    assert "| validation loss | 2.2500 nats a token |" in card
    assert "| bits per byte | 1.7500 |" in card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "hf", "--quantize", 5], "--quantize must be 4 or 8; got 5"),
        (["--to", "hf", "--group-size", 32], "--group-size has no effect"),
        (["--to", "hf", "--quantize", 4, "--group-size", 33], "groups of 33"),
        (["--to", "hf", "--quantize", 4, "--group-size", 128], "choose a smaller --group-size"),
        (["--to", "gguf", "--quantize", 4, "--group-size", 64], "GGUF file is 32"),
        (["--to", "hf", "--dtype", "bfloat"], "float32, float16 or bfloat16"),
        (["--to", "hf", "--base", "x"], "--base has no effect"),
        (["--to", "hf", "--fuse", "nowhere"], "nowhere"),
        (["--to", "peft", "--dtype", "bf16"], "--dtype has no effect"),
        (["--to", "peft"], "no adapter|not an adapter"),
    ],
)
def test_what_has_no_meaning_is_refused(
    words: list[str | int], message: str, model: Path, tmp_path: Path
) -> None:

    said = refused(model, *map(str, words), "--out", tmp_path / "out")
    assert re.search(message, said), said
    assert "\n" not in said
    assert not (tmp_path / "out").exists()


def test_what_comes_into_being_meanwhile_is_not_lost(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlxgpt.checkpoint import exporting

    out, real = tmp_path / "out", exporting.write_weights

    def slow(*words: Any) -> Any:
        out.mkdir()
        (out / "mine").write_text("mine")
        return real(*words)

    monkeypatch.setattr(exporting, "write_weights", slow)
    assert "has come into being meanwhile" in refused(model, "--to", "hf", "--out", out)
    assert [p.name for p in out.iterdir()] == ["mine"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "out"]


def test_places_that_would_harm_are_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "inside the source" in refused(model, "--to", "hf", "--out", model / "sub")
    assert "looks like a file" in refused(model, "--to", "hf", "--out", tmp_path / "x.gguf")
    (tmp_path / "file").write_text("")
    assert "is no folder" in refused(model, "--to", "hf", "--out", tmp_path / "file" / "x")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for here in (".", "", tmp_path / "empty"):
        assert "the one you are in" in refused(model, "--to", "hf", "--out", here)
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("to", ["gguf", "hf"])
def test_it_is_said_that_quantized_weights_are_unpacked(
    to: str, model: Path, adapter: Path, tmp_path: Path
) -> None:
    run(model, "--to", "hf", "--quantize", 4, "--group-size", 32, "--out", tmp_path / "q")
    fuse = ["--fuse", adapter] if to == "hf" else []
    words = ["export", tmp_path / "q", "--to", to, "--out", tmp_path / "x", *fuse]
    result = CliRunner().invoke(app, [*map(str, words)])
    assert "note: the quantized weights of the source are unpacked" in result.stderr
    assert (tmp_path / "x").is_dir()


def test_a_signal_to_end_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from mlxgpt.checkpoint import exporting\n"
        "def end(*words): os.kill(os.getpid(), signal.SIGTERM)\n"
        "exporting.write_weights = end\n"
        "sys.argv = ['mlxgpt', 'export', sys.argv[1], '--to', 'hf', '--out', sys.argv[2]]\n"
        "from mlxgpt.cli.app import main\n"
        "main()\n"
    )
    words = [sys.executable, "-c", script, str(model), str(tmp_path / "out")]
    ended = subprocess.run(words, capture_output=True, text=True)
    assert ended.returncode == 130, ended.stderr
    assert ended.stderr.strip() == "mlxgpt: interrupted"
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
