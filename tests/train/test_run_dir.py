import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import (
    arrays,
    assert_same_run,
    go_on,
    newest_state,
    prepare,
    start,
    tiny,
)

from mlxgpt.errors import CheckpointError, ConfigError, MLXGPTError
from mlxgpt.train import RunDirectory, TrainConfig


def test_a_new_run_wants_a_place_of_its_own(tmp_path: Path, corpus: Path) -> None:
    RunDirectory(tmp_path / "new").check_free(overwrite=False)
    (tmp_path / "empty").mkdir()
    RunDirectory(tmp_path / "empty").check_free(overwrite=False)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("years of work")
    (tmp_path / "file").write_text("")
    start(tmp_path / "run", tiny(corpus), stop_after=1)
    for name, overwrite, message in (
        ("foreign", False, "is not empty and holds no run"),
        ("foreign", True, "is not empty and holds no run"),
        ("file", False, "is a file"),
        ("file", True, "is a file"),
        ("caf\udce9", False, r"caf\\udce9 is not UTF-8"),
        ("run", False, r"already holds a run: go on with --resume .*--overwrite"),
    ):
        with pytest.raises(ConfigError, match=message):
            RunDirectory(tmp_path / name).check_free(overwrite=overwrite)
    RunDirectory(tmp_path / "run").check_free(overwrite=True)


def test_opening_a_run_directory_makes_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "new")
    run.check_free(overwrite=True)
    assert run.metrics() == []
    assert not run.started
    assert not run.path.exists()


def test_a_replaced_run_leaves_nothing_behind(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "fresh", tiny(corpus, seed=1))
    start(tmp_path / "run", tiny(corpus, steps=20))
    RunDirectory(tmp_path / "run").plot("a title")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    start(tmp_path / "run", tiny(corpus, seed=1))
    assert_same_run(tmp_path / "fresh", tmp_path / "run")
    assert not (tmp_path / "run" / "loss.png").exists()
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_unused_names_count_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for corpus, name in (
        ("python", "python-1"),
        ("../texts/my book.txt.gz", "my-book-1"),
        ("texts/*.txt", "run-1"),
        (".", "run-1"),
        ("žlutý.txt", "lut-1"),
    ):
        assert RunDirectory.unused(corpus) == Path("runs") / name
    (tmp_path / "runs" / "python-1").mkdir(parents=True)
    (tmp_path / "runs" / "python-2").touch()
    assert RunDirectory.unused("python") == Path("runs/python-3")


def test_the_curve_is_drawn_even_of_an_empty_run(tmp_path: Path, corpus: Path) -> None:
    for stop in (0, 1, 5):
        start(tmp_path / f"{stop}", tiny(corpus), stop_after=stop)
        plot = RunDirectory(tmp_path / f"{stop}").plot("words.txt, 10 steps")
        assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["caf\udce9.txt", r"$\no$.txt", "a_b^c.txt"])
def test_any_name_of_a_file_may_be_the_title_of_the_curve(
    tmp_path: Path, corpus: Path, name: str
) -> None:
    start(tmp_path / "run", tiny(corpus), stop_after=1)
    assert RunDirectory(tmp_path / "run").plot(name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("where", ["weights", "rename", "publish"])
def test_a_full_disk_keeps_the_old_state(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    start(tmp_path / "whole", tiny(corpus))
    folder = tmp_path / "run"
    start(folder, tiny(corpus), stop_after=5)
    before = arrays(folder / "model.safetensors")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = {
        "weights": "mlxgpt.checkpoint.training_state.write_tensors",
        "rename": "mlxgpt.checkpoint.training_state.new_folder",
        "publish": "mlxgpt.train.trainer.publish_weights",
    }[where]
    with monkeypatch.context() as patch:
        if where == "publish":
            patch.setattr(
                "mlxgpt.train.trainer.Trainer.resume", _resume_quietly(full, patch, target)
            )
        else:
            patch.setattr(target, full)
        with pytest.raises((CheckpointError, OSError), match="No space left on device"):
            go_on(folder)
    after = arrays(folder / "model.safetensors")
    assert all((before[n] == after[n]).all() for n in before)
    assert not list(folder.rglob("tmp-*"))
    go_on(folder)
    assert_same_run(tmp_path / "whole", folder)
    assert newest_state(folder).name == "step-00000010"


@contextmanager
def only_small_files(most_bytes: int) -> Iterator[None]:
    """Let the system refuse to write beyond `most_bytes` of a file, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_weights_that_do_not_fit_on_the_disk_are_no_state(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "whole", tiny(corpus))
    folder = tmp_path / "run"
    start(folder, tiny(corpus), stop_after=5)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 20_000
    with (
        only_small_files(size - 1000),
        pytest.raises(
            CheckpointError, match=r"cannot save step 6 .*what was saved before is untouched"
        ),
    ):
        go_on(folder)
    assert newest_state(folder).name == "step-00000005"
    go_on(folder)
    assert_same_run(tmp_path / "whole", folder)


def _resume_quietly(full: object, patch: pytest.MonkeyPatch, target: str) -> object:
    from mlxgpt.train import Trainer

    original = Trainer.resume

    def resume(self: Trainer) -> int:
        done = original(self)
        patch.setattr(target, full)
        return done

    return resume


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        ("", 16, "empty"),
        ("abc", 16, "too small|at least|needs"),
        ("abcdefghijklmnopq", 64, "context"),
    ],
)
def test_a_text_that_is_too_small_is_refused_before_anything_is_made(
    tmp_path: Path, text: str, context: int, message: str
) -> None:
    corpus = tmp_path / "c.txt"
    corpus.write_text(text)
    with pytest.raises(MLXGPTError, match=message):
        start(tmp_path / "run", tiny(corpus, model={"max_seq_len": context}))
    assert not (tmp_path / "run").exists()


def test_the_tokenizer_must_fit_into_the_model(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"the tokenizer has \d+ ids, but 'model.vocab_size' is"):
        prepare(tiny(corpus, model={"vocab_size": 100}))
    assert prepare(tiny(corpus, model={"vocab_size": 1000})).config.model.vocab == 1000


def test_two_trainings_cannot_hold_one_folder(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run").locked():
        with (
            pytest.raises(ConfigError, match=f"is being trained by process {os.getpid()}"),
            RunDirectory(tmp_path / "run").locked(),
        ):
            pass
        (tmp_path / "run" / "run.yaml").write_text("")
    with RunDirectory(tmp_path / "run").locked():  # let go of, and kept since it is no longer empty
        pass
    assert (tmp_path / "run").exists()


def test_a_folder_that_was_held_for_nothing_is_gone(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), RunDirectory(tmp_path / "run").locked():
        raise RuntimeError
    assert not (tmp_path / "run").exists()
    (tmp_path / "kept").mkdir()
    with RunDirectory(tmp_path / "kept").locked():
        pass
    RunDirectory(tmp_path / "kept").check_free(overwrite=False)  # the lock alone is no content


def test_a_run_that_cannot_be_replaced_stays_whole(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    start(folder, tiny(corpus), stop_after=3)
    before = sorted(p.name for p in folder.rglob("*"))

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("mlxgpt.train.run_dir.discard", refuse)
    with pytest.raises(ConfigError, match=r"cannot replace .*state: Permission denied"):
        RunDirectory(folder).create(RunDirectory(folder).config(TrainConfig))
    assert sorted(p.name for p in folder.rglob("*")) == before


def test_a_network_that_no_memory_holds_is_refused_before_it_is_made(corpus: Path) -> None:
    for model in (
        {"n_embd": 100_000, "n_head": 2},
        {"n_embd": 16, "n_head": 2, "vocab_size": 2 * 10**9},
    ):
        with pytest.raises(ConfigError, match=r"parameters, and training them takes .* GiB"):
            prepare(tiny(corpus, model=model))


def test_a_run_says_where_its_corpus_is_from_any_folder(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(corpus.parent)
    config = tiny(corpus)
    config = replace(config, data=replace(config.data, corpus=corpus.name))
    assert prepare(config).config.data.corpus == str(corpus)
