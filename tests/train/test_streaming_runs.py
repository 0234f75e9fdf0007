"""Runs whose text is encoded while they train: BPE-dropout that acts, ends, and resumes."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_runs import (
    EAGER,
    Recorder,
    assert_same_run,
    go_on,
    losses,
    prepare,
    start,
    tiny,
)

from mlxgpt.data import Prefetcher, Split, StreamingWindows, WindowBatches
from mlxgpt.errors import CheckpointError, ConfigError, DataError
from mlxgpt.text import Tokenizer
from mlxgpt.train import RunDirectory, TrainConfig, Trainer, describe, prepare_run


def streamed(corpus: Path, dropout: float = 0.2, **changes: Any) -> TrainConfig:
    data = {"bpe_dropout": dropout, "stream": True}
    return tiny(corpus, data=data, tokenizer={"source": "bpe", "vocab_size": 300}, **changes)


def test_b13_the_rate_reaches_the_text_that_is_trained_on(tmp_path: Path, corpus: Path) -> None:
    seen = {}
    for rate in (0.0, 0.2, 0.9):
        folder = tmp_path / f"{rate}"
        start(folder, streamed(corpus, rate))
        seen[rate] = losses(folder)
        batches = prepare(streamed(corpus, rate)).windows
        assert isinstance(batches, StreamingWindows)
        assert batches.dropout == rate
        assert RunDirectory(folder).config(TrainConfig).data.bpe_dropout == rate
        assert RunDirectory(folder).config(TrainConfig).data.stream is True
    assert len({tuple(s) for s in seen.values()}) == 3
    assert all(s[-1][1] < s[0][1] for s in seen.values())


@pytest.mark.parametrize("k", [0, 2, 7])
def test_b26_a_stop_leaves_no_trace(tmp_path: Path, corpus: Path, k: int) -> None:
    config = streamed(corpus, dropout=0.3, grad_accum_steps=2, workers=2)
    start(tmp_path / "whole", config)
    assert not start(tmp_path / "run", config, stop_after=k).finished
    assert go_on(tmp_path / "run").finished
    assert_same_run(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("workers", [2, 8])
def test_b15_threads_that_prepare_batches_change_nothing(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    start(tmp_path / "one", streamed(corpus))
    monkeypatch.setattr(
        "mlxgpt.train.trainer.Prefetcher",
        lambda function, items, **_: Prefetcher(function, items, workers=workers),
    )
    start(tmp_path / "many", streamed(corpus))
    assert_same_run(tmp_path / "one", tmp_path / "many")


def test_b16_validation_and_the_saved_tokenizer_have_no_dropout(
    tmp_path: Path, corpus: Path
) -> None:
    def first_validation(name: str, config: TrainConfig) -> float:
        outcome = start(tmp_path / name, config)
        assert outcome.evaluation is not None
        return outcome.evaluation.loss

    frozen = {"steps": 1, "optimizer": {"max_lr": 1e-30}}
    found = {first_validation(f"{p}", streamed(corpus, p, **frozen)) for p in (0.0, 0.5, 1.0)}
    cached = tiny(corpus, tokenizer={"source": "bpe", "vocab_size": 300}, **frozen)
    assert found == {first_validation("cached", cached)}
    saved = json.loads((tmp_path / "1.0" / "tokenizer.json").read_text())
    assert saved["model"]["dropout"] is None
    assert Tokenizer.load(tmp_path / "1.0") == Tokenizer.load(tmp_path / "cached")
    run, prepared = RunDirectory(tmp_path / "1.0"), prepare(streamed(corpus, 1.0, **frozen))
    documents = Split(prepared.corpus, prepared.config.data, prepared.config.seed).val_documents()
    eot, encode = prepared.tokenizer.eot_id, prepared.tokenizer.encode
    plain = [i for document in documents for i in [*encode(document.text), eot]]
    assert prepared.val.tokens.tolist() == plain
    run.create(prepared.config)
    trainer = Trainer(prepared, run, environment=EAGER)
    assert trainer.validate().loss == trainer.validate().loss
    trainer._step.close()


@pytest.mark.parametrize("stream", [None, True])
def test_a_tokenizer_without_merges_trains_without_dropout_and_says_so_once(
    tmp_path: Path, corpus: Path, stream: bool | None
) -> None:
    plain = tiny(corpus, data={"stream": stream})
    asked = tiny(corpus, data={"bpe_dropout": 0.1, "stream": stream})
    prepared = prepare(asked)
    lines = describe(prepared, EAGER)
    assert sum("BPE-dropout is not possible with this char tokenizer" in x for x in lines) == 1
    assert isinstance(prepared.windows, StreamingWindows if stream else WindowBatches)
    assert (prepared.config.data.bpe_dropout, prepared.config.data.stream) == (0.0, bool(stream))
    for name, config in (("plain", plain), ("asked", asked)):
        start(tmp_path / name, config)
    assert_same_run(tmp_path / "plain", tmp_path / "asked")
    assert (tmp_path / "plain" / "run.yaml").read_bytes() == (
        tmp_path / "asked" / "run.yaml"
    ).read_bytes()


def test_the_start_up_lines_tell_of_the_stream(corpus: Path) -> None:
    text = "\n".join(describe(prepare(streamed(corpus, 0.25)), EAGER))
    prepared = prepare(streamed(corpus, 0.25))
    assert isinstance(prepared.windows, StreamingWindows)
    size = prepared.windows.text.num_bytes
    assert f"text       {size:,} bytes to train on, streamed with BPE-dropout 0.25\n" in text
    assert f"tokens     {prepared.val.num_tokens:,} to validate on" in text
    again = "\n".join(describe(prepare(streamed(corpus, 0.0)), EAGER))
    assert "streamed without BPE-dropout\n" in again
    assert "(from the cache)" in again
    cached = "\n".join(describe(prepare(tiny(corpus)), EAGER))
    assert "to train on, " in cached
    assert "streamed" not in cached


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("bpe_dropout: 0.2", "bpe_dropout: 0.3", "'data.bpe_dropout' was 0.2 .* and is 0.3 now"),
        ("bpe_dropout: 0.2", "bpe_dropout: 0.0", "'data.bpe_dropout' was 0.2"),
        ("bpe_dropout: 0.2\n  stream: true", "stream: false", "'data.bpe_dropout' was 0.2"),
        ("stream: true", "stream: false", "run.yaml is damaged: 'stream' is false"),
    ],
)
def test_another_rate_in_run_yaml_is_refused(
    tmp_path: Path, corpus: Path, before: str, after: str, named: str
) -> None:
    start(tmp_path / "run", streamed(corpus), stop_after=4)
    yaml = tmp_path / "run" / "run.yaml"
    assert before in yaml.read_text()
    yaml.write_text(yaml.read_text().replace(before, after))
    with pytest.raises(CheckpointError, match=named):
        go_on(tmp_path / "run")


def test_b26_another_text_is_refused(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "run", streamed(corpus), stop_after=4)
    text = corpus.read_text()
    corpus.write_text("A" + text[1:])  # in the training part, so that validation is as it was
    with pytest.raises(CheckpointError, match="is not what this run was trained on"):
        go_on(tmp_path / "run")
    corpus.write_text(text)
    assert go_on(tmp_path / "run").finished


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "whole", tiny(corpus))
    start(tmp_path / "run", tiny(corpus), stop_after=4)
    yaml = tmp_path / "run" / "run.yaml"
    old = yaml.read_text().replace("  bpe_dropout: 0.0\n  stream: false\n", "")
    assert "stream" not in old
    yaml.write_text(old)
    state = next((tmp_path / "run" / "state").glob("*/*.json"))
    facts = json.loads(state.read_text())
    for name in ("data.bpe_dropout", "data.stream"):
        del facts["trainer"]["settings"][name]
    state.write_text(json.dumps(facts))
    assert go_on(tmp_path / "run").finished
    assert losses(tmp_path / "whole") == losses(tmp_path / "run")


def test_settings_that_contradict_each_other_are_refused(corpus: Path) -> None:
    for wrong, named in (
        ({"bpe_dropout": -0.1}, "'bpe_dropout' must be between 0 and 1, got -0.1"),
        ({"bpe_dropout": 1.1}, "'bpe_dropout'"),
        ({"bpe_dropout": float("nan")}, "bpe_dropout"),
        ({"bpe_dropout": 0.1, "stream": False}, "'stream' is false.*same ids in every epoch"),
    ):
        with pytest.raises(ConfigError, match=named):
            tiny(corpus, data=wrong)
    assert tiny(corpus, data={"bpe_dropout": 0.1}).data.streams
    assert not tiny(corpus, data={"stream": False}).data.streams


def prefetching() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("mlxgpt-prefetch")]


def test_an_error_in_the_text_ends_the_run_with_its_place_and_keeps_the_last_state(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = StreamingWindows._ids

    def fail(self: StreamingWindows, start: int, stop: int, seed: int, name: str) -> np.ndarray:
        if name.endswith("batch 5"):
            raise DataError(f"{name}: oh")
        return original(self, start, stop, seed, name)

    monkeypatch.setattr(StreamingWindows, "_ids", fail)
    with pytest.raises(DataError, match="step 6: row 0 of batch 5: oh"):
        start(tmp_path / "run", streamed(corpus))
    assert prefetching() == []
    assert [s for s, _ in losses(tmp_path / "run")] == [1, 2, 3, 4, 5]
    monkeypatch.undo()
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "cache"))
    assert go_on(tmp_path / "run").finished


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_no_thread_is_left_when_a_run_ends_early(
    tmp_path: Path, corpus: Path, error: type[BaseException]
) -> None:
    def stop(step: int) -> None:
        assert prefetching()
        if step == 4:
            raise error

    with pytest.raises(error):
        start(tmp_path / "run", streamed(corpus), observer=Recorder(stop))
    assert prefetching() == []


def test_work_that_is_worth_it_is_announced_to_the_tokenizer(
    corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def use_compiled(self: Tokenizer, num_bytes: int, notice: Any) -> bool:
        notice("compiling")
        told.append((self.vocab_size, num_bytes))
        return False

    monkeypatch.setattr(Tokenizer, "use_compiled", use_compiled)
    seen: list[str] = []
    prepared = prepare_run(
        streamed(corpus, steps=50, grad_accum_steps=2), lambda what, *_: seen.append(what)
    )
    batches = prepared.windows
    assert isinstance(batches, StreamingWindows)
    val_bytes = corpus.stat().st_size - batches.text.num_bytes
    assert [n for _, n in told] == [val_bytes, 50 * 2 * 4 * batches.bytes_per_window]
    assert seen.count("compiling") == 2


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import os, signal
from pathlib import Path
import mlxgpt
from test_streaming_runs import streamed
from tiny_runs import Recorder, start
kill = Recorder(lambda step: os.kill(os.getpid(), signal.SIGKILL) if step == {step} else None)
start(Path("run"), streamed(Path("words.txt"), dropout=0.3), observer=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 8])
def test_a_killed_run_goes_on_with_the_same_batches(
    tmp_path: Path, corpus: Path, step: int
) -> None:
    start(tmp_path / "whole", streamed(corpus, dropout=0.3))
    code = SCRIPT.format(tests=str(Path(__file__).parent), step=step)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    go_on(tmp_path / "run")
    assert_same_run(tmp_path / "whole", tmp_path / "run")
