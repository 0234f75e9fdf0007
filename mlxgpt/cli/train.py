"""`mlxgpt train`: flags -> a run directory with a model in it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlxgpt.cli.shell import command, import_heavy
from mlxgpt.cli.training_options import (
    Assignments,
    ConfigFile,
    Dtype,
    EvalEvery,
    GradAccum,
    LrSchedule,
    OptimizerName,
    Overwrite,
    Resume,
    SaveEvery,
    Seed,
    Warmup,
)
from mlxgpt.cli.training_run import Words, begin, go_on, refuse_beside_resume

if TYPE_CHECKING:
    from mlxgpt.train import Prepared, RunDirectory

Text = str | None
Whole = int | None
Number = float | None


def train(
    context: typer.Context,
    corpus: Annotated[
        Text,
        typer.Option(help="File, folder, glob, or a built-in corpus: python, shakespeare."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory. [default: runs/CORPUS-N]")
    ] = None,
    resume: Resume = None,
    overwrite: Overwrite = False,
    config: ConfigFile = None,
    set_: Assignments = None,
    preset: Annotated[
        Text, typer.Option(help="Shape of the model: 0.8m 3m 10m 23m 75m 270m 1b. [0.8m]")
    ] = None,
    tokenizer: Annotated[
        Text, typer.Option(help="bpe, char, or a tokenizer or model to take it from. [bpe]")
    ] = None,
    vocab_size: Annotated[
        Whole, typer.Option(help="Ids of a bpe tokenizer trained here. [1024]")
    ] = None,
    steps: Annotated[Whole, typer.Option(help="Optimizer steps. [1000]")] = None,
    batch: Annotated[Whole, typer.Option(help="Windows in a micro-batch. [24]")] = None,
    grad_accum: GradAccum = None,
    ctx: Annotated[Whole, typer.Option(help="Tokens in a window. [128]")] = None,
    n_layer: Annotated[Whole, typer.Option(help="Transformer blocks. [4]")] = None,
    n_embd: Annotated[Whole, typer.Option(help="Width of the network. [128]")] = None,
    n_head: Annotated[Whole, typer.Option(help="Query heads. [4]")] = None,
    n_kv_head: Annotated[
        Whole, typer.Option(help="Key/value heads: 1 is MQA. [as --n-head]")
    ] = None,
    optimizer: OptimizerName = None,
    max_lr: Annotated[
        Number, typer.Option(help="Peak learning rate of AdamW. [by width: 3e-3 at 128]")
    ] = None,
    lr_schedule: LrSchedule = None,
    warmup: Warmup = None,
    weight_decay: Annotated[Number, typer.Option(help="Decoupled decay of matrices. [0.1]")] = None,
    dropout: Annotated[Number, typer.Option(help="Dropout rate, in training only. [0]")] = None,
    dtype: Dtype = None,
    seed: Seed = None,
    val_fraction: Annotated[Number, typer.Option(help="Share of the text held back. [0.1]")] = None,
    bpe_dropout: Annotated[
        Number,
        typer.Option(help="Share of the tokenizer's merges left out, anew in each window. [0]"),
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Encode the text while training, not before. [with --bpe-dropout]",
        ),
    ] = None,
    eval_every: EvalEvery = None,
    save_every: SaveEvery = None,
    init_from: Annotated[
        Text, typer.Option(help="Model directory to take the first weights from.")
    ] = None,
) -> None:
    """Train a model from scratch on your text."""
    import_heavy("mlxgpt.cli.progress", "mlxgpt.train")
    flags: dict[str, Any] = {
        "data.corpus": corpus,
        "data.val_fraction": val_fraction,
        "data.bpe_dropout": bpe_dropout,
        "data.stream": stream,
        "tokenizer.source": tokenizer,
        "tokenizer.vocab_size": vocab_size,
        "model.max_seq_len": ctx,
        "model.n_layer": n_layer,
        "model.n_embd": n_embd,
        "model.n_head": n_head,
        "model.n_kv_head": n_kv_head,
        "optimizer.name": optimizer,
        "optimizer.max_lr": max_lr,
        "optimizer.lr_schedule": lr_schedule,
        "optimizer.warmup_steps": warmup,
        "optimizer.weight_decay": weight_decay,
        "steps": steps,
        "micro_batch_size": batch,
        "grad_accum_steps": grad_accum,
        "dropout": dropout,
        "dtype": dtype,
        "seed": seed,
        "eval_every": eval_every,
        "save_every": save_every,
        "init_from": init_from,
    }
    from mlxgpt.train import RunDirectory, assemble, prepare_resume, prepare_run

    if resume is not None:
        refuse_beside_resume(context, f"--init-from {resume}")
        go_on(resume, prepare_resume, _words)
    else:
        wanted = assemble(config, preset, flags, set_ or [])
        where = out or RunDirectory.unused(wanted.data.corpus)
        begin(where, lambda progress: prepare_run(wanted, progress), _words, overwrite=overwrite)


def _words(prepared: "Prepared", run: "RunDirectory") -> Words:
    from mlxgpt.train import describe, title

    return Words(
        about=lambda environment: describe(prepared, environment),
        title=title(prepared),
        result="model",
        next=command("generate", run.path),
        resume=command("train", "--resume", run.path),
    )
