"""Config -> what a trainer works on: examples, how they are drawn, a network to be changed."""

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mlxgpt.checkpoint import load_tokenizer, open_checkpoint
from mlxgpt.checkpoint.chosen_template import chosen_template, not_needed
from mlxgpt.data import Batch, batch_bytes
from mlxgpt.data.sft.batching import validation_batches
from mlxgpt.data.sft.drawing import Drawing
from mlxgpt.data.sft.drawings import drawing_for
from mlxgpt.data.sft.encoder import RowEncoder
from mlxgpt.data.sft.example_set import ExampleSet, load_sets
from mlxgpt.data.sft.packing import Pieces, cut_into_pieces
from mlxgpt.model import GPTConfig, train_flops_per_token
from mlxgpt.model.cost import forward_flops_per_token
from mlxgpt.text import Tokenizer
from mlxgpt.train.environment import refuse_too_large_to_tune
from mlxgpt.train.resolve import num_workers
from mlxgpt.train.run_dir import RunDirectory
from mlxgpt.train.sft.config import SFTConfig
from mlxgpt.train.sft.job import SFTJob
from mlxgpt.train.sft.tuned import tune

Progress = Callable[[str, int, int], None]
"""Told (what is being done, how much is done, how much there is)."""


def prepare_sft(config: SFTConfig, progress: Progress) -> SFTJob:
    """Open the base, read and encode the rows, and prepare the network.

    Raises an `MLXGPTError` for whatever the config asks for and the world does not have.
    """
    checkpoint = open_checkpoint(config.base)
    tokenizer = load_tokenizer(checkpoint)
    template = chosen_template(checkpoint, tokenizer, config.data.template)
    config, notes = _settle_dropout(config, tokenizer)
    length = config.data.length_for(checkpoint.config.context)
    config = replace(config, data=replace(config.data, max_length=length))
    refuse_too_large_to_tune(checkpoint.config, full=config.tuning.method == "full")
    encoder = RowEncoder(tokenizer, template.template, config.data, length)
    train, valid = load_sets(
        config.data, encoder, config.seed, lambda d, t: progress("reading the rows", d, t)
    )
    if not train.uses_template:
        template = not_needed(config.data.template)
    pieces = _pieces(config, train, length)
    drawing = drawing_for(
        config.data,
        [example.length for example in (pieces.examples if pieces else train.examples)],
        config.micro_batch_size * config.grad_accum_steps,
        length,
        config.seed,
    )
    resolved = resolve_sft(config, drawing)
    progress("loading the base", 0, 0)
    added = template.template if template.added else None
    tuned = tune(config.base, checkpoint, tokenizer, added, config.tuning, config.seed)
    validation = _validation(resolved, valid)
    lengths = tokenizer.token_byte_lengths
    return SFTJob(
        config=resolved,
        examples=train,
        pieces=pieces,
        drawing=drawing,
        tuned=tuned,
        validation=validation,
        validation_bytes=sum(batch_bytes(batch, lengths) for batch in validation),
        flops_per_token=_flops(resolved, checkpoint.config, train),
        template=template.name,
        notes=(*template.notes, *notes),
    )


def prepare_sft_resume(run: RunDirectory, progress: Progress) -> SFTJob:
    """Do the same for a run that exists, with its own config; its weights come later."""
    return prepare_sft(run.config(SFTConfig), progress)


def resolve_sft(config: SFTConfig, drawing: Drawing) -> SFTConfig:
    """Return `config` with every `None` that has a meaning replaced by what it means."""
    optimizer = config.optimizer
    steps = config.steps or drawing.steps_in(1.0 if config.epochs is None else config.epochs)
    warmup = steps * 3 // 100 if optimizer.warmup_steps is None else optimizer.warmup_steps
    eval_every = config.eval_every or max(1, steps // 10)
    return replace(
        config,
        data=replace(
            config.data,
            train=_absolute(config.data.train),
            valid=config.data.valid and _absolute(config.data.valid),
        ),
        base=_absolute(config.base)
        if os.path.exists(os.path.expanduser(config.base))
        else config.base,
        optimizer=replace(
            optimizer,
            max_lr=optimizer.max_lr or (2e-5 if config.tuning.method == "full" else 2e-4),
            warmup_steps=warmup,
        ),
        steps=steps,
        epochs=None,
        eval_every=eval_every,
        save_every=config.save_every or eval_every,
        workers=num_workers(config),
    )


def _pieces(config: SFTConfig, examples: ExampleSet, length: int) -> Pieces | None:
    if config.data.packing != "concatenate":
        return None
    return cut_into_pieces(examples.examples, length, config.seed)


def _absolute(path: str) -> str:
    return str(Path(os.path.expanduser(path)).absolute())


def _settle_dropout(config: SFTConfig, tokenizer: Tokenizer) -> tuple[SFTConfig, tuple[str, ...]]:
    """Go without BPE-dropout, and with a note, where there can be none."""
    if not config.data.bpe_dropout or tokenizer.supports_dropout:
        return config, ()
    note = (
        f"BPE-dropout is not possible with this {tokenizer.kind} tokenizer "
        f"({tokenizer.no_dropout_reason}): training goes on without it"
    )
    return replace(config, data=replace(config.data, bpe_dropout=0.0)), (note,)


def _validation(config: SFTConfig, valid: ExampleSet | None) -> list[Batch]:
    if valid is None:
        return []
    return validation_batches(valid.examples, config.micro_batch_size, config.val_tokens)


def _flops(config: SFTConfig, model: GPTConfig, examples: ExampleSet) -> float:
    """Return the operations of training on one token of an average example.

    Frozen matrices have no gradient: two thirds of the work.
    """
    lengths = [example.length for example in examples.examples]
    context = math.ceil(sum(lengths) / len(lengths))
    if config.tuning.method == "full" and config.tuning.num_layers is None:
        return train_flops_per_token(model, context)
    return 2 * forward_flops_per_token(model, context)
