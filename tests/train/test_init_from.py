"""A run that begins with the weights of another model, whatever form that model has."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_runs import TEXT, ignore, prepare

from mlxgpt.checkpoint import open_checkpoint, save_model
from mlxgpt.checkpoint.gguf.writing import write_gguf
from mlxgpt.errors import CheckpointError, ConfigError
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer, train_bpe
from mlxgpt.train import Prepared, TrainConfig, assemble, prepare_run

Make = Callable[..., GPT]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_bpe([TEXT], 270)


@pytest.fixture(scope="module")
def base(random_gpt: Make) -> GPT:
    return random_gpt(vocab_size=280, n_layer=1, n_embd=32)


@pytest.fixture
def models(
    base: GPT, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The same model in each form; `owner/name` is that of a Hub which has nothing else."""
    save_model(tmp_path / "directory", base, tokenizer)
    for file in (tmp_path / "base.gguf", tmp_path / "folder" / "base.gguf"):
        weights = base.weights().items()
        write_gguf(file, config=base.config, weights=weights, tokenizer=tokenizer, name="base")

    def download(name: object) -> Path:
        if str(name) != "owner/name@v1":
            raise CheckpointError(f"there is no {name}")
        return tmp_path / "directory"

    monkeypatch.setattr("mlxgpt.checkpoint.opening.download", download)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(corpus: Path, source: str | None, *assignments: str) -> TrainConfig:
    flags = {"data.corpus": str(corpus), "init_from": source, "steps": 2, "micro_batch_size": 2}
    return assemble(None, None, flags, assignments)


def check(prepared: Prepared, base: GPT, tokenizer: Tokenizer) -> None:
    weights = prepared.model.weights()
    assert all((weights[name] == w).all().item() for name, w in base.weights().items())
    assert prepared.tokenizer.encode(TEXT) == tokenizer.encode(TEXT)
    assert prepared.tokenizer.eot_id == tokenizer.eot_id


FORMS = ["directory", "base.gguf", "folder", "owner/name@v1"]


@pytest.mark.parametrize("form", FORMS)
def test_weights_shape_and_tokenizer_come_from_any_form(
    form: str, models: Path, corpus: Path, base: GPT, tokenizer: Tokenizer
) -> None:
    config = settings(corpus, form)
    assert (config.init_from, config.tokenizer.source) == (form, form)
    assert (config.model.n_layer, config.model.vocab_size) == (1, 280)
    check(prepare(config), base, tokenizer)


@pytest.mark.parametrize("form", FORMS)
def test_the_tokenizer_alone_too(
    form: str, models: Path, corpus: Path, tokenizer: Tokenizer
) -> None:
    prepared = prepare(settings(corpus, None, f"tokenizer.source={form}"))
    assert prepared.tokenizer.encode(TEXT) == tokenizer.encode(TEXT)


def test_a_model_is_looked_up_once(
    models: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(corpus, "owner/name@v1")
    asked = []

    def counted(location: str) -> object:
        asked.append(location)
        return open_checkpoint(location)

    monkeypatch.setattr("mlxgpt.train.prepare.open_checkpoint", counted)
    prepare_run(config, ignore)
    assert asked == ["owner/name@v1"]


def test_another_tokenizer_is_refused(models: Path, corpus: Path) -> None:
    config = settings(corpus, "base.gguf", "tokenizer.source=char")
    with pytest.raises(ConfigError, match=r"has another; add --tokenizer base\.gguf"):
        prepare(config)


def test_what_is_not_there_is_said_before_anything_is_read(models: Path, corpus: Path) -> None:
    with pytest.raises(CheckpointError, match=r"did you mean base\.gguf"):
        settings(corpus, "./bose.gguf")
    with pytest.raises(CheckpointError, match="there is no owner/other"):
        settings(corpus, "owner/other")
    config = settings(corpus, "directory", "tokenizer.source=owner/other")
    with pytest.raises(CheckpointError, match="there is no owner/other"):
        prepare(config)
