"""`mlxgpt sft`: a base and rows -> a run directory with an adapter, or a whole model, in it."""

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
    from mlxgpt.train import RunDirectory
    from mlxgpt.train.sft.job import SFTJob

Text = str | None
Whole = int | None
Number = float | None
_PACK = "pack mode"


def _pack_mode(context: typer.Context, value: str | bool | None) -> str | bool | None:
    """Remember the pack mode; the options come in the order in which they were typed."""
    if value:
        context.meta[_PACK] = "sequence" if value is True else value
    return value


def sft(
    context: typer.Context,
    base: Annotated[
        Text,
        typer.Argument(
            help="Model to start from: a run, a directory, a GGUF file or a name on the Hub."
        ),
    ] = None,
    data: Annotated[
        Text,
        typer.Option(help="Rows to learn: a .jsonl or .json file, or a folder with train.jsonl."),
    ] = None,
    valid: Annotated[
        Text, typer.Option(help="Rows to validate on. [valid.jsonl of the folder, else held back]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory. [default: runs/DATA-N]")] = None,
    resume: Resume = None,
    overwrite: Overwrite = False,
    config: ConfigFile = None,
    set_: Assignments = None,
    method: Annotated[Text, typer.Option(help="lora, dora or full. [lora]")] = None,
    rank: Annotated[Whole, typer.Option(help="Rank of the changes. [8]")] = None,
    scale: Annotated[
        Number, typer.Option(help="What the changes are multiplied with (alpha / rank). [2]")
    ] = None,
    lora_dropout: Annotated[
        Number, typer.Option(help="Dropout rate on the input of the changes. [0]")
    ] = None,
    num_layers: Annotated[
        Whole, typer.Option(help="Train this many layers, from the end. [all]")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help="Matrix of a layer to change, such as q_proj; several times. [all]"),
    ] = None,
    epochs: Annotated[Number, typer.Option(help="Passes over the rows. [1]")] = None,
    steps: Annotated[Whole, typer.Option(help="Optimizer steps, in place of --epochs.")] = None,
    batch: Annotated[Whole, typer.Option(help="Rows in a micro-batch. [4]")] = None,
    grad_accum: GradAccum = None,
    tokens_per_batch: Annotated[
        Whole, typer.Option(help="Cut a step into micro-batches of at most so many places.")
    ] = None,
    max_length: Annotated[
        Whole, typer.Option(help="Tokens of a row at most. [what the base sees, up to 2048]")
    ] = None,
    overflow: Annotated[
        Text, typer.Option(help="truncate-right, truncate-left or drop. [truncate-right]")
    ] = None,
    pack_mode: Annotated[
        Text,
        typer.Option(
            help="How rows are drawn: none, sequence, sample or bucket. [none]",
            callback=_pack_mode,
        ),
    ] = None,
    pack: Annotated[  # noqa: ARG001 (its callback has acted)
        bool | None,
        typer.Option("--pack", help="The same as --pack-mode sequence.", callback=_pack_mode),
    ] = None,
    length_bucket: Annotated[Whole, typer.Option(help="Bins of --pack-mode bucket. [4]")] = None,
    template: Annotated[
        Text,
        typer.Option(
            help="Chat template: auto, plain, chatml, llama3, gemma, mistral, zephyr, alpaca, or a "
            "file. [auto: the base's own]"
        ),
    ] = None,
    mask_prompt: Annotated[
        bool | None,
        typer.Option(
            "--mask-prompt/--no-mask-prompt", help="Learn answers only, or all. [answers only]"
        ),
    ] = None,
    turns: Annotated[
        Text, typer.Option(help="Learn all turns of the assistant, or the last. [all]")
    ] = None,
    bpe_dropout: Annotated[
        Number, typer.Option(help="Share of the tokenizer's merges left out, anew each time. [0]")
    ] = None,
    optimizer: OptimizerName = None,
    max_lr: Annotated[
        Number, typer.Option(help="Peak learning rate. [2e-4; 2e-5 for method full]")
    ] = None,
    lr_schedule: LrSchedule = None,
    warmup: Warmup = None,
    weight_decay: Annotated[Number, typer.Option(help="Decoupled decay of matrices. [0]")] = None,
    dtype: Dtype = None,
    seed: Seed = None,
    val_fraction: Annotated[
        Number, typer.Option(help="Share of the rows held back; 0: none. [0.05]")
    ] = None,
    checkpoint_layers: Annotated[
        bool | None,
        typer.Option(
            "--checkpoint-layers/--keep-layers",
            help="Less memory for long rows, more time. [keep]",
        ),
    ] = None,
    eval_every: EvalEvery = None,
    save_every: SaveEvery = None,
) -> None:
    """Fine-tune a model on rows of questions and answers."""
    import_heavy("mlxgpt.cli.progress", "mlxgpt.train.sft.prepare")
    flags: dict[str, Any] = {
        "data.train": data,
        "data.valid": valid,
        "data.val_fraction": val_fraction,
        "data.template": template,
        "data.mask_prompt": mask_prompt,
        "data.turns": turns,
        "data.max_length": max_length,
        "data.overflow": overflow,
        "data.pack_mode": context.meta.get(_PACK) or pack_mode,
        "data.length_bucket": length_bucket,
        "data.tokens_per_batch": tokens_per_batch,
        "data.bpe_dropout": bpe_dropout,
        "tuning.method": method,
        "tuning.rank": rank,
        "tuning.scale": scale,
        "tuning.dropout": lora_dropout,
        "tuning.num_layers": num_layers,
        "tuning.targets": target or None,
        "optimizer.name": optimizer,
        "optimizer.max_lr": max_lr,
        "optimizer.lr_schedule": lr_schedule,
        "optimizer.warmup_steps": warmup,
        "optimizer.weight_decay": weight_decay,
        "epochs": epochs,
        "steps": steps,
        "micro_batch_size": batch,
        "grad_accum_steps": grad_accum,
        "checkpoint_layers": checkpoint_layers,
        "dtype": dtype,
        "seed": seed,
        "eval_every": eval_every,
        "save_every": save_every,
    }
    from mlxgpt.train import RunDirectory
    from mlxgpt.train.sft import assemble_sft
    from mlxgpt.train.sft.prepare import prepare_sft, prepare_sft_resume

    if resume is not None:
        refuse_beside_resume(context, "another --out")
        go_on(resume, prepare_sft_resume, _words)
    else:
        wanted = assemble_sft(config, base, flags, set_ or [])
        where = out or RunDirectory.unused(wanted.data.train)
        begin(where, lambda progress: prepare_sft(wanted, progress), _words, overwrite=overwrite)


def _words(job: "SFTJob", run: "RunDirectory") -> Words:
    from mlxgpt.train.sft.describe import describe_sft, title_sft

    whole = job.tuned.adapter is None
    tried = (run.path,) if whole else (job.config.base, "--adapter", run.path)
    return Words(
        about=lambda environment: describe_sft(job, environment),
        title=title_sft(job),
        result="model" if whole else "adapter",
        next=command("generate" if job.template == "plain" else "chat", *tried),
        resume=command("sft", "--resume", run.path),
    )
