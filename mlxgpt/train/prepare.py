"""Config -> what a trainer works on: tokenizer, batches, a network with its first weights."""

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import mlx.core as mx

from mlxgpt.checkpoint import Checkpoint, load_tokenizer, open_checkpoint, plain_weights
from mlxgpt.data import (
    Corpus,
    EvaluationBatches,
    Split,
    StreamingWindows,
    StreamSet,
    TokenFile,
    TokenSet,
    WindowBatches,
    batch_bytes,
    evaluation_batches,
    open_corpus,
    prepare,
    prepare_stream,
)
from mlxgpt.errors import ConfigError, DataError, did_you_mean
from mlxgpt.model import GPT, init_weights
from mlxgpt.text import Tokenizer, train_bpe, train_char
from mlxgpt.train.config import TrainConfig
from mlxgpt.train.environment import refuse_too_large
from mlxgpt.train.prepared import Prepared
from mlxgpt.train.resolve import resolve
from mlxgpt.train.run_dir import RunDirectory

Progress = Callable[[str, int, int], None]
"""Told (what is being done, how much is done, how much there is)."""


def prepare_run(config: TrainConfig, progress: Progress) -> Prepared:
    """Open the corpus, make or load the tokenizer, encode or map the text, and make the network.

    Raises an `MLXGPTError` for whatever the config asks for and the world does not have.
    """
    refuse_too_large(config)
    # Hours of encoding later would be a bad time to fail.
    base = None if config.init_from is None else open_checkpoint(config.init_from)
    corpus = _open(config, progress)
    tokenizer = make_tokenizer(config, corpus, progress, base)
    if base is not None:
        _same_tokenizer(tokenizer, base, config)
    config, notes = _settle_dropout(config, tokenizer)
    data = _read(config, corpus, tokenizer, progress)
    resolved = resolve(config, tokenizer.vocab_size)
    refuse_too_large(resolved)
    batches = _batches(resolved, data, tokenizer, progress)
    model = GPT(resolved.model)
    if base is None:
        init_weights(model, config.seed)
    else:
        _take_weights(model, base, config)
    measured = _validation(resolved, data.val, tokenizer)
    return Prepared(
        resolved, corpus, tokenizer, batches, data.val, data.reused, model, *measured, notes
    )


def prepare_resume(run: RunDirectory, progress: Progress) -> Prepared:
    """Do the same for a run that exists: its own config and tokenizer; the weights come later."""
    config = run.config(TrainConfig)
    if not run.started:
        return prepare_run(config, progress)
    corpus = _open(config, progress)
    tokenizer = Tokenizer.load(run.path)
    data = _read(config, corpus, tokenizer, progress)
    batches = _batches(config, data, tokenizer, progress)
    model, measured = GPT(config.model), _validation(config, data.val, tokenizer)
    return Prepared(config, corpus, tokenizer, batches, data.val, data.reused, model, *measured)


def make_tokenizer(
    config: TrainConfig, corpus: Corpus, progress: Progress, base: Checkpoint | None = None
) -> Tokenizer:
    """Load the tokenizer that the config names, or train it on the training documents.

    `base` is the model of `init_from`, whose tokenizer it may be.
    """
    settings = config.tokenizer
    documents = (d.text for d in Split(corpus, config.data, config.seed).train_documents())
    if settings.source == "char":
        progress("reading characters", 0, 0)
        return train_char(documents)
    if settings.source == "bpe":
        return train_bpe(
            documents,
            settings.bpe_size,
            pattern=settings.pattern or "gpt2",
            progress=lambda done, total: progress("training the tokenizer", done, total),
        )
    if base is not None and settings.source == config.init_from:
        tokenizer = load_tokenizer(base)
    else:
        tokenizer = _tokenizer_of(settings.source)
    if tokenizer.eot_id is None:
        raise ConfigError(
            f"the tokenizer in {settings.source} has no end-of-text token to separate documents"
        )
    return tokenizer


def _tokenizer_of(source: str) -> Tokenizer:
    """Load a tokenizer from its directory or file, or that of a model, wherever the model is."""
    path = Path(os.path.expanduser(source))
    if path.suffix == ".json" or (os.path.isdir(path) and not any(path.glob("*.gguf"))):
        return Tokenizer.load(path)
    if not os.path.exists(path) and path.name == source:
        raise ConfigError(
            f"the tokenizer '{source}' is no directory, and neither bpe nor char"
            + did_you_mean(source, ("bpe", "char"))
        )
    return load_tokenizer(open_checkpoint(source))


def _open(config: TrainConfig, progress: Progress) -> Corpus:
    return open_corpus(
        config.data.corpus,
        text_field=config.data.text_field,
        progress=lambda done, total: progress("downloading", done, total),
    )


def _settle_dropout(
    config: TrainConfig, tokenizer: Tokenizer
) -> tuple[TrainConfig, tuple[str, ...]]:
    """Decide whether to stream; without BPE-dropout, and with a note, where there can be none."""
    data = config.data
    notes: tuple[str, ...] = ()
    if data.bpe_dropout > 0 and not tokenizer.supports_dropout:
        notes = (
            f"BPE-dropout is not possible with this {tokenizer.kind} tokenizer "
            f"({tokenizer.no_dropout_reason}): training goes on without it",
        )
        data = replace(data, bpe_dropout=0.0)
    return replace(config, data=replace(data, stream=data.streams)), notes


def _read(
    config: TrainConfig, corpus: Corpus, tokenizer: Tokenizer, progress: Progress
) -> TokenSet | StreamSet:
    """Encode the text, or map what is to be streamed; both from the cache if they are there."""
    streams = config.data.streams
    what = "mapping the text" if streams else "encoding"
    return (prepare_stream if streams else prepare)(
        corpus,
        tokenizer,
        config.data,
        config.seed,
        progress=lambda done, total: progress(what, done, total),
        notice=lambda line: progress(line, 0, 0),
    )


def _batches(
    config: TrainConfig, data: TokenSet | StreamSet, tokenizer: Tokenizer, progress: Progress
) -> WindowBatches | StreamingWindows:
    rows, length, seed = config.micro_batch_size, config.model.max_seq_len, config.seed
    if isinstance(data, TokenSet):
        return WindowBatches(data.train, rows, length, seed)
    windows = StreamingWindows(
        data.train, tokenizer, rows, length, seed, dropout=config.data.bpe_dropout
    )
    num_windows = config.steps * config.grad_accum_steps * rows
    num_bytes = num_windows * windows.bytes_per_window
    tokenizer.use_compiled(num_bytes, lambda line: progress(line, 0, 0))
    return windows


def _validation(
    config: TrainConfig, val: TokenFile, tokenizer: Tokenizer
) -> tuple[EvaluationBatches, float]:
    """Return what is measured, and its bytes. Raises `DataError` if there are none."""
    length, most = config.model.max_seq_len, config.val_tokens
    batches = evaluation_batches(val, config.micro_batch_size, length, most)
    total = sum(batch_bytes(batch, tokenizer.token_byte_lengths) for batch in batches)
    if total == 0:
        raise DataError(
            f"the validation text has {val.num_tokens} tokens, and none of "
            "them but the first is text; give more text or a larger 'val_fraction'"
        )
    return batches, total


def _same_tokenizer(tokenizer: Tokenizer, base: Checkpoint, config: TrainConfig) -> None:
    """Raise `ConfigError` unless the weights of `base` were trained with this tokenizer."""
    source = config.init_from
    if config.tokenizer.source != source and load_tokenizer(base) != tokenizer:
        raise ConfigError(
            f"--init-from {source}: its weights belong to its own tokenizer, and this run has "
            f"another; add --tokenizer {source}"
        )


def _take_weights(model: GPT, base: Checkpoint, config: TrainConfig) -> None:
    """Fill `model` with the weights of `base`. Raises `ConfigError` if the shapes differ."""
    mine = asdict(model.config)
    theirs = asdict(replace(base.config, max_seq_len=model.config.max_seq_len))
    if different := [name for name in mine if mine[name] != theirs[name]]:
        what = ", ".join(f"{n} is {theirs[n]} there, {mine[n]} here" for n in different)
        remedy = " ".join(f"--set model.{n}={theirs[n]}" for n in different)
        raise ConfigError(f"--init-from {config.init_from} has another shape: {what}; add {remedy}")
    model.set_weights(dict(plain_weights(base, mx.float32)))
