"""A run that was stopped, killed or finished goes on as if nothing had happened."""

import json
import shutil
from pathlib import Path

import pytest
from tiny_runs import (
    COMPILED,
    Recorder,
    arrays,
    assert_same_run,
    go_on,
    ignore,
    losses,
    newest_state,
    prepare,
    start,
    tiny,
    write_corpus,
)

from mlxgpt.checkpoint import load_model
from mlxgpt.errors import CheckpointError, ConfigError, MLXGPTError
from mlxgpt.train import RunDirectory, TrainConfig, prepare_resume


def hard(corpus: Path, optimizer: str = "adamw") -> TrainConfig:
    """10 steps with everything that could be forgotten: dropout, accumulation, workers, epochs."""
    return tiny(
        corpus,
        dropout=0.1,
        grad_accum_steps=3,
        workers=2,
        optimizer={"name": optimizer, "warmup_steps": 4},
    )


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_stop_after_any_step_leaves_no_trace(
    tmp_path: Path, corpus: Path, optimizer: str
) -> None:
    start(tmp_path / "whole", hard(corpus, optimizer))
    records = RunDirectory(tmp_path / "whole").metrics()
    assert records[-2]["epoch"] > 1.5
    for k in range(10):
        folder = tmp_path / f"stopped-{k}"
        outcome = start(folder, hard(corpus, optimizer), stop_after=k)
        assert (outcome.step, outcome.finished) == (k, False)
        assert go_on(folder).finished
        assert_same_run(tmp_path / "whole", folder)
        shutil.rmtree(folder)


def test_a_run_may_be_stopped_again_and_again(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "whole", hard(corpus))
    folder = tmp_path / "bits"
    start(folder, hard(corpus), stop_after=1)
    watch = Recorder()
    ends = [go_on(folder, stop_after=2, observer=watch).step for _ in range(5)]
    assert ends == [3, 5, 7, 9, 10]
    assert_same_run(tmp_path / "whole", folder)
    rates = [r["lr"] for r in RunDirectory(tmp_path / "whole").metrics() if "lr" in r]
    assert [r.lr for r in watch.steps] == rates[1:]


@pytest.mark.slow
def test_a_compiled_run_resumes_to_the_bit(tmp_path: Path, corpus: Path) -> None:
    config = tiny(corpus, dropout=0.1, grad_accum_steps=2, workers=2, steps=6)
    start(tmp_path / "whole", config, environment=COMPILED)
    start(tmp_path / "half", config, stop_after=3, environment=COMPILED)
    go_on(tmp_path / "half", environment=COMPILED)
    assert_same_run(tmp_path / "whole", tmp_path / "half")


class Crash(Exception):
    pass


def crash_in_step(step: int) -> Recorder:
    def hook(now: int) -> None:
        if now == step:
            raise Crash

    return Recorder(hook)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 10])
def test_a_crash_goes_back_to_the_last_save(tmp_path: Path, corpus: Path, step: int) -> None:
    config = tiny(corpus, dropout=0.1)
    start(tmp_path / "whole", config)
    folder = tmp_path / "crashed"
    with pytest.raises(Crash):
        start(folder, config, observer=crash_in_step(step))
    assert newest_state(folder).name == f"step-{(step - 1) // 3 * 3:08d}"
    go_on(folder)
    assert_same_run(tmp_path / "whole", folder)


@pytest.mark.parametrize("leave", ["run.yaml only", "half a state", "state without a model"])
def test_a_run_that_died_before_its_first_save_starts_anew(
    tmp_path: Path, corpus: Path, leave: str
) -> None:
    config = hard(corpus)
    start(tmp_path / "whole", config)
    folder = tmp_path / "early"
    run = RunDirectory(folder)
    if leave == "state without a model":
        start(folder, config, stop_after=0)
        (folder / "model.safetensors").unlink()
    else:
        run.create(prepare(config).config)
    if leave == "half a state":
        (folder / "state" / "tmp-step-00000000").mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    go_on(folder)
    assert_same_run(tmp_path / "whole", folder)


def test_a_line_cut_off_by_a_crash_is_written_again(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "whole", hard(corpus))
    for cut in (1, 2, 30):
        folder = tmp_path / f"cut-{cut}"
        start(folder, hard(corpus), stop_after=6)
        file = folder / "metrics.jsonl"
        line = json.dumps({"step": 7, "loss": 1.0, "lr": 0.5, "grad_norm": 1.0}) + "\n"
        with file.open("a") as f:
            f.write(line[:-cut])
        go_on(folder)
        assert_same_run(tmp_path / "whole", folder)


def test_a_crash_between_the_state_and_the_model_is_mended(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    start(folder, hard(corpus))
    right = (folder / "model.safetensors").read_bytes()
    start(tmp_path / "other", hard(corpus), stop_after=2)
    (folder / "model.safetensors").unlink()
    shutil.copy(tmp_path / "other" / "model.safetensors", folder / "model.safetensors")
    go_on(folder)
    assert (folder / "model.safetensors").read_bytes() == right


def test_a_state_without_its_marker_is_passed_over_and_does_no_harm(
    tmp_path: Path, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start(tmp_path / "whole", hard(corpus))
    folder = tmp_path / "run"
    start(folder, hard(corpus), stop_after=4)
    for step in (6, 99):
        (folder / "state" / f"step-{step:08d}").mkdir()
    go_on(folder)
    assert "step-00000099 is incomplete and is passed over" in caplog.text
    assert_same_run(tmp_path / "whole", folder)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    start(folder, hard(corpus))
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    watch = Recorder()
    outcome = go_on(folder, observer=watch)
    assert outcome.finished
    assert outcome.step == 10
    assert watch.steps == watch.evaluations == []
    assert before == {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_another_corpus_is_refused(tmp_path: Path, corpus: Path) -> None:
    folder = tmp_path / "run"
    start(folder, hard(corpus), stop_after=4)
    before = arrays(folder / "model.safetensors")
    write_corpus(corpus, seed=1)
    with pytest.raises(CheckpointError, match=r"is not what this run was trained on.*--init"):
        go_on(folder)
    write_corpus(corpus)
    go_on(folder)
    assert arrays(folder / "model.safetensors").keys() == before.keys()


def test_another_tokenizer_is_refused(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "run", hard(corpus), stop_after=4)
    start(tmp_path / "other", tiny(write_corpus(tmp_path / "b.txt", words=90)), stop_after=0)
    shutil.copy(tmp_path / "other" / "tokenizer.json", tmp_path / "run" / "tokenizer.json")
    (tmp_path / "run" / "tokenizer.json").write_text(
        (tmp_path / "run" / "tokenizer.json").read_text().replace('"a"', '"Q"')
    )
    with pytest.raises(MLXGPTError):
        go_on(tmp_path / "run")


def test_a_plain_model_has_nothing_to_resume(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "run", hard(corpus))
    shutil.rmtree(tmp_path / "run" / "state")
    with pytest.raises(CheckpointError, match=r"weights only.*--init-from"):
        go_on(tmp_path / "run")
    (tmp_path / "run" / "run.yaml").unlink()
    with pytest.raises(CheckpointError, match=r"weights only.*--init-from"):
        go_on(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"not a run directory: it has no run\.yaml"):
        prepare_resume(RunDirectory(tmp_path / "nowhere"), ignore)


def test_a_damaged_state_is_named(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "run", hard(corpus), stop_after=4)
    file = newest_state(tmp_path / "run") / "optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match=r"optimizer\.safetensors is cut off"):
        go_on(tmp_path / "run")


def test_a_state_of_another_shape_is_refused(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "run", hard(corpus), stop_after=4)
    yaml = tmp_path / "run" / "run.yaml"
    written = yaml.read_text()
    yaml.write_text(written.replace("n_layer: 2", "n_layer: 3"))
    with pytest.raises(CheckpointError, match=r"disagree about 'model\.layers\.2"):
        go_on(tmp_path / "run")
    yaml.write_text(written.replace("name: adamw", "name: muon"))
    with pytest.raises(CheckpointError, match="optimizer state"):
        go_on(tmp_path / "run")


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("seed: 0", "seed: 1", "'seed' was 0 when step 4 was saved and is 1 now"),
        ("steps: 10", "steps: 20", "'steps' was 10"),
        ("dropout: 0.1", "dropout: 0.0", "'dropout' was 0.1"),
        ("max_seq_len: 16", "max_seq_len: 8", "'model.max_seq_len' was 16"),
        ("micro_batch_size: 4", "micro_batch_size: 2", "'micro_batch_size' was 4"),
        ("grad_accum_steps: 3", "grad_accum_steps: 1", "'grad_accum_steps' was 3"),
        ("warmup_steps: 4", "warmup_steps: 2", "'optimizer.warmup_steps' was 4"),
    ],
)
def test_other_settings_in_run_yaml_are_refused(
    tmp_path: Path, corpus: Path, before: str, after: str, named: str
) -> None:
    start(tmp_path / "run", hard(corpus), stop_after=4)
    yaml = tmp_path / "run" / "run.yaml"
    assert before in yaml.read_text()
    yaml.write_text(yaml.read_text().replace(before, after))
    with pytest.raises(CheckpointError, match=f"{named}.*--init-from"):
        go_on(tmp_path / "run")


def test_a_moved_corpus_and_other_times_to_save_are_no_other_run(
    tmp_path: Path, corpus: Path
) -> None:
    start(tmp_path / "whole", hard(corpus))
    start(tmp_path / "run", hard(corpus), stop_after=4)
    corpus.rename(tmp_path / "moved.txt")
    yaml = tmp_path / "run" / "run.yaml"
    moved = yaml.read_text().replace("words.txt", "moved.txt")
    yaml.write_text(moved.replace("save_every: 3", "save_every: 1"))
    assert go_on(tmp_path / "run").finished
    assert_same_run(tmp_path / "whole", tmp_path / "run")


def test_init_from_takes_the_weights_and_nothing_else(tmp_path: Path, corpus: Path) -> None:
    first = tmp_path / "first"
    start(first, tiny(corpus))
    other = write_corpus(tmp_path / "more.txt", seed=5)
    config = tiny(other, init_from=str(first), tokenizer={"source": str(first)})
    start(tmp_path / "stopped", config, stop_after=0)
    taken, given = load_model(tmp_path / "stopped").weights(), load_model(first).weights()
    assert all((taken[n] == given[n]).all().item() for n in given)
    start(tmp_path / "second", config)
    go_on(tmp_path / "stopped")
    assert_same_run(tmp_path / "second", tmp_path / "stopped")
    assert losses(tmp_path / "second")[0][1] < losses(first)[0][1] - 0.5
    longer = tiny(
        other, init_from=str(first), tokenizer={"source": str(first)}, model={"max_seq_len": 32}
    )
    start(tmp_path / "longer", longer, stop_after=1)


def test_init_from_refuses_what_does_not_fit(tmp_path: Path, corpus: Path) -> None:
    first = tmp_path / "first"
    start(first, tiny(corpus), stop_after=1)
    own = {"source": str(first)}
    wide = tiny(corpus, init_from=str(first), tokenizer=own, model={"n_embd": 32})
    with pytest.raises(ConfigError, match=r"n_embd is 16 there, 32 here.*--set model.n_embd=16"):
        prepare(wide)
    # as many characters, but others: the weights would be read as those of other letters
    other = tmp_path / "other.txt"
    other.write_text(corpus.read_text().replace("a", "z"))
    with pytest.raises(ConfigError, match=r"add --tokenizer .*first"):
        prepare(tiny(other, init_from=str(first)))
    with pytest.raises(CheckpointError, match="does not exist"):
        prepare(tiny(corpus, init_from=str(tmp_path / "nowhere")))
