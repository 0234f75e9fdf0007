"""Whole runs: what is logged, validated and saved, and that it is all a function of the config."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tiny_runs import (
    COMPILED,
    EAGER,
    Recorder,
    assert_same_run,
    evaluations,
    losses,
    prepare,
    start,
    tiny,
)

from mlxgpt.checkpoint import load
from mlxgpt.config import build, load_yaml
from mlxgpt.model import GPT
from mlxgpt.train import RunDirectory, TrainConfig, Trainer


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_config_gives_the_same_run_to_the_bit(
    tmp_path: Path, corpus: Path, workers: int
) -> None:
    config = tiny(corpus, dropout=0.1, grad_accum_steps=2, workers=workers)
    start(tmp_path / "a", config)
    start(tmp_path / "b", config)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    start(tmp_path / "c", replace(config, seed=1))
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


def test_the_written_config_gives_the_same_run(tmp_path: Path, corpus: Path) -> None:
    start(tmp_path / "a", tiny(corpus, dropout=0.1, optimizer={"max_lr": None}))
    written = build(TrainConfig, load_yaml(tmp_path / "a" / "run.yaml"))
    assert written.optimizer.max_lr is not None
    assert written.model.vocab_size is not None
    start(tmp_path / "b", written)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "a/run.yaml").read_bytes() == (tmp_path / "b/run.yaml").read_bytes()


def test_the_first_loss_is_that_of_guessing(tmp_path: Path, corpus: Path) -> None:
    for tokenizer in ({"source": "char"}, {"source": "bpe", "vocab_size": 300}):
        prepared = prepare(tiny(corpus, tokenizer=tokenizer, steps=1))
        watch = Recorder()
        run = RunDirectory(tmp_path / tokenizer["source"])  # type: ignore[arg-type]
        run.create(prepared.config)
        Trainer(prepared, run, environment=EAGER, observer=watch).run()
        assert watch.steps[0].loss == pytest.approx(math.log(prepared.config.model.vocab), rel=0.02)


@pytest.mark.slow
def test_the_loss_falls_on_a_text_that_can_be_learned(tmp_path: Path, corpus: Path) -> None:
    for name in ("adamw", "muon"):
        config = tiny(corpus, steps=40, optimizer={"name": name, "max_lr": 0.02})
        outcome = start(tmp_path / name, config)
        logged = [loss for _, loss in losses(tmp_path / name)]
        assert logged[0] > 5.5
        assert np.mean(logged[-5:]) < 2.8
        assert outcome.evaluation is not None
        assert outcome.evaluation.loss < 3.0


def test_metrics_hold_every_step_and_validation(tmp_path: Path, corpus: Path) -> None:
    watch = Recorder()
    config = tiny(corpus, grad_accum_steps=2, optimizer={"warmup_steps": 5})
    outcome = start(tmp_path / "run", config, observer=watch)
    assert outcome.finished
    assert outcome.step == 10
    assert [s for s, _ in losses(tmp_path / "run")] == list(range(1, 11))
    assert [s for s, _ in evaluations(tmp_path / "run")] == [4, 8, 10]
    assert [s for s, _ in watch.evaluations] == [4, 8, 10]
    assert watch.saves == [0, 3, 6, 9, 10]
    records = [r for r in RunDirectory(tmp_path / "run").metrics() if "loss" in r]
    names = {"step", "loss", "lr", "grad_norm", "tok_per_sec", "mfu", "epoch"}
    names |= {"num_tokens", "num_targets"}
    assert set(records[0]) == names
    assert records[0]["num_targets"] == 2 * 4 * 16
    assert [r["lr"] for r in records[:5]] == pytest.approx([0.002, 0.004, 0.006, 0.008, 0.01])
    assert 0 < records[-1]["lr"] < 0.001
    assert all(r["grad_norm"] > 0 and r["tok_per_sec"] > 0 and r["mfu"] > 0 for r in records)
    tokens = prepare(config).windows.token_file.num_tokens
    assert records[-1]["epoch"] == pytest.approx(10 * 2 * 4 / (tokens // 16))
    last = [r for r in RunDirectory(tmp_path / "run").metrics() if "val_loss" in r][-1]
    assert last["rss_peak_bytes"] > 1e7


@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_is_given_its_own_time(tmp_path: Path, corpus: Path, workers: int) -> None:
    prepared = prepare(tiny(corpus, workers=workers, steps=8))
    run, watch = RunDirectory(tmp_path / "run"), Recorder()
    run.create(prepared.config)
    trainer = Trainer(prepared, run, environment=EAGER, observer=watch)
    original = trainer._step.run

    def slow(step: int, batches: Any) -> Any:
        time.sleep(0.03)
        return original(step, batches)

    trainer._step.run = slow  # type: ignore[method-assign]
    begin = time.perf_counter()
    trainer.run()
    taken = [4 * 16 / report.tok_per_sec for report in watch.steps]
    assert min(taken) >= 0.03
    assert sum(taken) <= time.perf_counter() - begin
    assert watch.steps[0].mfu > 0


def test_what_is_saved_is_what_was_validated(tmp_path: Path, corpus: Path) -> None:
    outcome = start(tmp_path / "run", tiny(corpus, val_tokens=None))
    model, tokenizer = load(tmp_path / "run")
    tokens = np.array(prepare(tiny(corpus)).val.tokens).astype(np.int64)
    nll, targets = nll_of(model, tokens)
    assert outcome.evaluation is not None
    assert outcome.evaluation.num_tokens == len(tokens) - 1
    assert outcome.evaluation.loss == pytest.approx(nll / len(targets), rel=1e-5)
    assert tokenizer.decode(tokens[:-1]) in corpus.read_text()


def nll_of(model: GPT, tokens: np.ndarray) -> tuple[float, np.ndarray]:
    """Return nats over all targets in windows of 16, the plain way, and the targets."""
    nll = 0.0
    for begin in range(0, len(tokens) - 1, 16):
        window = tokens[begin : begin + 17]
        logits = np.array(model(mx.array(window[None, :-1])))[0].astype(np.float64)
        logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        nll -= logp[np.arange(len(window) - 1), window[1:]].sum()
    return nll, tokens[1:]


@pytest.mark.parametrize("tokenizer", [{"source": "char"}, {"source": "bpe", "vocab_size": 290}])
def test_bits_per_byte_counts_bytes_of_text(tmp_path: Path, tokenizer: dict) -> None:
    corpus = tmp_path / "accents.txt"
    corpus.write_text("žluťoučký kůň 😀 pěl — ďábelské ódy.\n" * 30, encoding="utf-8")
    config = tiny(corpus, tokenizer=tokenizer, val_tokens=None)
    outcome = start(tmp_path / "run", config)
    model, made = load(tmp_path / "run")
    tokens = np.array(prepare(config).val.tokens).astype(np.int64)
    nll, targets = nll_of(model, tokens)
    spelled = sum(len(made.token_bytes(int(t))) for t in targets if t != made.eot_id)
    assert targets[-1] == made.eot_id
    assert outcome.evaluation is not None
    expected = nll / math.log(2) / spelled
    assert outcome.evaluation.bits_per_byte == pytest.approx(expected, rel=1e-5)


def test_validation_does_not_depend_on_the_batch_or_the_workers(
    tmp_path: Path, corpus: Path
) -> None:
    found = []
    for size, workers in ((1, 1), (3, 1), (4, 2), (10, 3)):
        prepared = prepare(tiny(corpus, micro_batch_size=size, workers=workers, val_tokens=None))
        run = RunDirectory(tmp_path / f"{size}")
        run.create(prepared.config)
        evaluation = Trainer(prepared, run, environment=EAGER).validate()
        found.append((evaluation.loss, evaluation.bits_per_byte, evaluation.num_tokens))
    for loss, bits, count in found[1:]:
        assert loss == pytest.approx(found[0][0], rel=1e-6)
        assert bits == pytest.approx(found[0][1], rel=1e-6)
        assert count == found[0][2]


def test_validations_and_saves_do_not_change_the_training(tmp_path: Path, corpus: Path) -> None:
    seldom = tiny(corpus, dropout=0.2, eval_every=100, save_every=100)
    often = replace(seldom, eval_every=1, save_every=2)
    start(tmp_path / "seldom", seldom)
    start(tmp_path / "often", often)
    assert losses(tmp_path / "seldom") == losses(tmp_path / "often")


def test_validation_has_no_dropout(tmp_path: Path, corpus: Path) -> None:
    def first_validation(dropout: float) -> float:
        config = tiny(corpus, dropout=dropout, steps=1, optimizer={"max_lr": 1e-30})
        outcome = start(tmp_path / f"{dropout}", config)
        assert outcome.evaluation is not None
        return outcome.evaluation.loss

    assert first_validation(0.0) == first_validation(0.3)


@pytest.mark.slow
def test_a_compiled_run_with_two_workers_repeats_and_equals_the_eager_one(
    tmp_path: Path, corpus: Path
) -> None:
    config = tiny(corpus, dropout=0.1, grad_accum_steps=2, workers=2, steps=6)
    start(tmp_path / "a", config, environment=COMPILED)
    start(tmp_path / "b", config, environment=COMPILED)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    start(tmp_path / "eager", config)
    compiled, eager = (dict(losses(tmp_path / name)) for name in ("a", "eager"))
    assert compiled == pytest.approx(eager, rel=1e-4)
