"""Fine-tunings from rows to an adapter: what changes, what does not, and that a stop is no loss."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from tiny_runs import COMPILED, Recorder
from tiny_tunings import prepare_tuning, tune_in, tune_on, tuning, write_base, write_rows

from mlxgpt.checkpoint import load, read_adapter
from mlxgpt.errors import CheckpointError, ConfigError, MLXGPTError
from mlxgpt.model import GPT
from mlxgpt.train import RunDirectory
from mlxgpt.train.sft import SFTConfig


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_base(tmp_path / "base")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "rows.jsonl")


def network(path: Path, adapter: Path | None = None) -> GPT:
    model, _ = load(path, adapter)
    assert isinstance(model, GPT)
    return model


def losses(folder: Path) -> list[float]:
    return [r["loss"] for r in RunDirectory(folder).metrics() if "loss" in r]


def arrays(file: Path) -> dict[str, mx.array]:
    found = mx.load(str(file))
    assert isinstance(found, dict)
    return found


def same(a: Path, b: Path) -> bool:
    one, other = arrays(a), arrays(b)
    return one.keys() == other.keys() and all(mx.array_equal(one[n], other[n]) for n in one)


MODES: list[dict[str, Any]] = [
    {"pack_mode": "none"},
    {"pack_mode": "sequence"},
    {"pack_mode": "sample"},
    {"pack_mode": "bucket", "length_bucket": 3},
]


@pytest.mark.parametrize("data", MODES, ids=lambda d: d["pack_mode"])
@pytest.mark.parametrize("method", ["lora", "dora", "full"])
def test_a_run_learns_and_shows_what_it_learned(
    tmp_path: Path, base: Path, rows: Path, data: dict[str, Any], method: str
) -> None:
    before = {name: file.read_bytes() for name, file in files(base)}
    how = {"method": method} | ({"rank": None} if method == "full" else {})
    watch = Recorder()
    config = tuning(base, rows, data=data, tuning=how, steps=24, eval_every=12)
    outcome = tune_in(tmp_path / "run", config, observer=watch)
    assert outcome.finished
    first, last = prepare_tuning(config), losses(tmp_path / "run")
    assert np.mean(last[-6:]) < np.mean(last[:6])
    assert {name: file.read_bytes() for name, file in files(base)} == before
    ids = mx.array([[5, 6, 7, 8]])
    plain = network(base)(ids)
    if method == "full":
        tuned = network(tmp_path / "run")(ids)
    else:
        assert read_adapter(tmp_path / "run").fine_tune_type == method
        tuned = network(base, tmp_path / "run")(ids)
        assert not (tmp_path / "run" / "model.safetensors").exists()
    assert float(mx.abs(tuned - plain).max().item()) > 1e-3
    assert watch.evaluations[-1][1].loss < validation(first)


def files(folder: Path) -> list[tuple[str, Path]]:
    return [(p.name, p) for p in sorted(folder.iterdir()) if p.is_file()]


def validation(job: Any) -> float:
    """Return the loss of a job's first weights on its validation rows."""
    total = count = 0.0
    for batch in job.validation:
        total += float(job.objective.nll(job.model, job.objective.inputs(batch), None).item())
        count += float(batch.loss_weights.sum())
    return total / count


@pytest.mark.parametrize("data", MODES, ids=lambda d: d["pack_mode"])
def test_the_validation_loss_is_the_same_number_in_every_mode(
    tmp_path: Path, base: Path, rows: Path, data: dict[str, Any]
) -> None:
    wanted = validation(prepare_tuning(tuning(base, rows)))
    for batch in (1, 4, 7):
        job = prepare_tuning(tuning(base, rows, data=data, micro_batch_size=batch))
        assert validation(job) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
@pytest.mark.parametrize("data", MODES, ids=lambda d: d["pack_mode"])
def test_a_stop_leaves_no_trace(
    tmp_path: Path, base: Path, rows: Path, data: dict[str, Any], stop: int
) -> None:
    config = tuning(
        base,
        rows,
        data=data | {"bpe_dropout": 0.2},
        tuning={"dropout": 0.3},
        optimizer={"warmup_steps": 3},
        grad_accum_steps=2,
    )
    tune_in(tmp_path / "whole", config)
    assert not tune_in(tmp_path / "run", config, stop_after=stop).finished
    assert tune_on(tmp_path / "run").finished
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    for name in ("adapters.safetensors", "state/step-00000006/optimizer.safetensors"):
        assert same(tmp_path / "run" / name, tmp_path / "whole" / name)
    rates = [r["lr"] for r in RunDirectory(tmp_path / "run").metrics() if "lr" in r]
    assert rates[:3] == pytest.approx([1e-2 / 3, 2e-2 / 3, 1e-2])
    assert [r["step"] for r in RunDirectory(tmp_path / "run").metrics() if "loss" in r] == [
        *range(1, 7)
    ]


def test_a_step_is_the_same_however_it_is_cut(tmp_path: Path, base: Path, rows: Path) -> None:
    seen = []
    for changes in (
        {"micro_batch_size": 8},
        {"micro_batch_size": 2, "grad_accum_steps": 4},
        {"micro_batch_size": 8, "data": {"tokens_per_batch": 40}},
        {"micro_batch_size": 8, "workers": 2},
        {"micro_batch_size": 8, "checkpoint_layers": True},
        {"micro_batch_size": 8, "logits_chunk": 5},
    ):
        folder = tmp_path / str(len(seen))
        tune_in(folder, tuning(base, rows, optimizer={"eps": 1e-3}, **changes))
        seen.append(losses(folder))
    for other in seen[1:]:
        assert other == pytest.approx(seen[0], rel=1e-4)


def test_compiled_is_eager(tmp_path: Path, base: Path, rows: Path) -> None:
    config = tuning(base, rows, data={"pack_mode": "sequence"}, optimizer={"eps": 1e-3})
    tune_in(tmp_path / "eager", config)
    tune_in(tmp_path / "compiled", config, environment=COMPILED)
    assert losses(tmp_path / "compiled") == pytest.approx(losses(tmp_path / "eager"), rel=1e-4)


def test_epochs_become_steps(base: Path, rows: Path) -> None:
    job = prepare_tuning(tuning(base, rows, steps=None, epochs=3, data={"val_fraction": 0}))
    assert job.config.num_steps == 18  # 24 rows, 4 a step
    assert job.epoch(18) == 3
    packed = tuning(
        base, rows, steps=None, epochs=3, data={"val_fraction": 0, "pack_mode": "sequence"}
    )
    short = prepare_tuning(packed)
    assert short.config.num_steps < 18
    assert short.config.optimizer.warmup_steps == short.config.num_steps * 3 // 100


def test_other_rows_and_another_base_are_refused(tmp_path: Path, base: Path, rows: Path) -> None:
    tune_in(tmp_path / "run", tuning(base, rows), stop_after=2)
    text = rows.read_text()
    write_rows(rows, seed=5)
    with pytest.raises(CheckpointError, match="is not what this run was trained on"):
        tune_on(tmp_path / "run")
    rows.write_text(text)
    weights = (base / "model.safetensors").read_bytes()
    write_base(base, n_embd=16)
    model, tokenizer = load(base)
    assert isinstance(model, GPT)
    model.model.norm.weight = model.model.norm.weight * 1.5
    from mlxgpt.checkpoint import save_model

    save_model(base, model, tokenizer)
    with pytest.raises(CheckpointError, match="is not what this run was trained on"):
        tune_on(tmp_path / "run")
    (base / "model.safetensors").write_bytes(weights)
    assert tune_on(tmp_path / "run").finished


def test_a_run_of_another_kind_is_told_apart(tmp_path: Path, base: Path, rows: Path) -> None:
    from mlxgpt.train import TrainConfig

    tune_in(tmp_path / "run", tuning(base, rows), stop_after=1)
    assert RunDirectory(tmp_path / "run").is_fine_tuning
    with pytest.raises(CheckpointError, match="is a run of `mlxgpt sft`"):
        RunDirectory(tmp_path / "run").config(TrainConfig)
    again = RunDirectory(tmp_path / "run").config(SFTConfig)
    assert again.base == str(base)


def test_longer_than_the_base_can_see_is_refused(base: Path, rows: Path) -> None:
    with pytest.raises(ConfigError, match=r"max_length.*is 65, but the base sees 64"):
        prepare_tuning(tuning(base, rows, data={"max_length": 65}))


FORMS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "red"}, {"role": "assistant", "content": "blue"}]},
    {"prompt": "one two", "completion": "three"},
    {"text": "cat dog bird runs"},
    {"instruction": "sing", "input": "red", "output": "green"},
]


@pytest.mark.parametrize("data", MODES, ids=lambda d: d["pack_mode"])
@pytest.mark.parametrize("mask", [True, False])
def test_every_form_trains_in_every_mode(tmp_path: Path, data: dict[str, Any], mask: bool) -> None:
    base = write_base(tmp_path / "base", max_seq_len=256)
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in FORMS * 3), encoding="utf-8")
    more = {"template": "auto", "max_length": 200, "mask_prompt": mask, "val_fraction": 0}
    config = tuning(base, file, data=data | more, steps=3)
    assert tune_in(tmp_path / "run", config).finished
    assert all(np.isfinite(losses(tmp_path / "run")))
    seen: dict[bool, int] = {}
    for masked in (True, False):
        job = prepare_tuning(tuning(base, file, data=data | more | {"mask_prompt": masked}))
        seen[masked] = sum(example.num_supervised for example in job.examples.examples)
        drawn = [batch for step in (1, 2, 3) for batch in job.batches(step)]
        terms = sum(int(batch.loss_weights.sum()) for batch in drawn)
        taken = [i for step in range(3) for row in job.drawing.rows(step) for i in row]
        assert terms == sum(job.examples.examples[i].num_supervised for i in taken)
    assert seen[True] < seen[False]


REFUSED = {
    "axolotl_conversation.tokenized_llama2chat.json": "rows of ids",
    "humaneval_example_problem.jsonl": "unknown kind of row",
    "humaneval_example_samples.jsonl": "unknown kind of row",
    "lfs_pointer_instead_of_lima.json": "git-lfs",
    "mlx-tune.LICENSE": "no file of rows",
    "mt_bench_question.jsonl": "unknown kind of row",
    "mt_bench_reference_gpt4.jsonl": "unknown kind of row",
    "synthetic_blank_and_truncated.jsonl": ":4: not JSON",
    "synthetic_latin1.jsonl": "not UTF-8",
}


def beginning(file: Path, folder: Path) -> Path:
    """Return `file`, or, where it is long, a file in `folder` of its first rows."""
    lines = file.read_bytes().splitlines(keepends=True)
    if file.suffix != ".jsonl" or len(lines) < 200:
        return file
    few = folder / f"{file.parent.name}-{file.name}"
    few.write_bytes(b"".join(lines[:100]))
    return few


@pytest.mark.slow
@pytest.mark.parametrize("data", MODES, ids=lambda d: d["pack_mode"])
def test_real_and_odd_files_train_or_are_refused_in_a_line(
    tmp_path: Path, data: dict[str, Any], shared_data: Path
) -> None:
    folder = shared_data / "sft"
    files = [*folder.glob("*.json*"), *folder.glob("mlx-*/*"), *folder.glob("odd/*")]
    assert len(files) > 20
    files = [beginning(file, tmp_path) for file in files]
    base, refused = write_base(tmp_path / "base", max_seq_len=128), dict[str, str]()
    more = {"template": "auto", "max_length": 128, "overflow": "truncate-left", "val_fraction": 0}
    for number, file in enumerate(files):
        config = tuning(base, file, data=data | more, steps=2)
        try:
            assert tune_in(tmp_path / str(number), config).finished
        except MLXGPTError as error:
            refused[file.name] = str(error)
        else:
            assert all(np.isfinite(losses(tmp_path / str(number))))
    assert refused.keys() == REFUSED.keys()
    for name, said in refused.items():
        assert name in said
        assert REFUSED[name] in said
        assert "\n" not in said


def test_texts_alone_need_no_template(tmp_path: Path) -> None:
    base, file = write_base(tmp_path / "base"), tmp_path / "rows.jsonl"
    file.write_text('{"text": "red green"}\n' * 3, encoding="utf-8")
    plain = prepare_tuning(tuning(base, file, data={"template": "auto", "val_fraction": 0}))
    assert (plain.template, plain.notes, plain.tuned.template) == ("plain", (), None)
    asked = prepare_tuning(tuning(base, file, data={"template": "alpaca", "val_fraction": 0}))
    assert any("no effect" in note for note in asked.notes)
