"""Config -> what a trainer works on: tokenizer, token files, a network with its first weights."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mlxgpt.checkpoint import load_config, model_directory, read_weights
from mlxgpt.data import Corpus, Split, TokenSet, open_corpus, prepare
from mlxgpt.errors import ConfigError, did_you_mean
from mlxgpt.model import GPT, init_weights
from mlxgpt.text import Tokenizer, train_bpe, train_char
from mlxgpt.train.config import TrainConfig
from mlxgpt.train.environment import refuse_too_large
from mlxgpt.train.resolve import resolve
from mlxgpt.train.run_dir import RunDirectory

Progress = Callable[[str, int, int], None]
"""Told (what is being done, how much is done, how much there is)."""


@dataclass(frozen=True)
class Prepared:
    """Everything that a training needs, in memory or mapped."""

    config: TrainConfig
    """Resolved."""
    corpus: Corpus
    tokenizer: Tokenizer
    tokens: TokenSet
    model: GPT

    @property
    def data_fingerprint(self) -> str:
        """Names the training and validation ids; a resumed run must find the same."""
        return f"{self.tokens.train.fingerprint}/{self.tokens.val.fingerprint}"


def prepare_run(config: TrainConfig, progress: Progress) -> Prepared:
    """Open the corpus, make or load the tokenizer, encode, and make the network.

    Raises an `MLXGPTError` for whatever the config asks for and the world does not have.
    """
    refuse_too_large(config)
    if config.init_from is not None:
        model_directory(config.init_from)  # hours of encoding later would be a bad time to fail
    corpus = _open(config, progress)
    tokenizer = make_tokenizer(config, corpus, progress)
    if config.init_from is not None:
        _same_tokenizer(tokenizer, config.init_from)
    tokens = _encode(config, corpus, tokenizer, progress)
    resolved = resolve(config, tokenizer.vocab_size)
    refuse_too_large(resolved)
    model = GPT(resolved.model)
    if config.init_from is None:
        init_weights(model, config.seed)
    else:
        _take_weights(model, config.init_from)
    return Prepared(resolved, corpus, tokenizer, tokens, model)


def prepare_resume(run: RunDirectory, progress: Progress) -> Prepared:
    """Do the same for a run that exists: its own config and tokenizer; the weights come later."""
    config = run.config()
    if not run.started:
        return prepare_run(config, progress)
    corpus = _open(config, progress)
    tokenizer = Tokenizer.load(run.path)
    tokens = _encode(config, corpus, tokenizer, progress)
    return Prepared(config, corpus, tokenizer, tokens, GPT(config.model))


def make_tokenizer(config: TrainConfig, corpus: Corpus, progress: Progress) -> Tokenizer:
    """Load the tokenizer that the config names, or train it on the training documents."""
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
    source = Path(settings.source)
    if not source.exists() and source.name == settings.source:
        raise ConfigError(
            f"the tokenizer '{source}' is no directory, and neither bpe nor char"
            + did_you_mean(settings.source, ("bpe", "char"))
        )
    tokenizer = Tokenizer.load(source)
    if tokenizer.eot_id is None:
        raise ConfigError(
            f"the tokenizer in {settings.source} has no end-of-text token to separate documents"
        )
    return tokenizer


def _open(config: TrainConfig, progress: Progress) -> Corpus:
    return open_corpus(
        config.data.corpus,
        text_field=config.data.text_field,
        progress=lambda done, total: progress("downloading", done, total),
    )


def _encode(
    config: TrainConfig, corpus: Corpus, tokenizer: Tokenizer, progress: Progress
) -> TokenSet:
    return prepare(
        corpus,
        tokenizer,
        config.data,
        config.seed,
        progress=lambda done, total: progress("encoding", done, total),
    )


def _same_tokenizer(tokenizer: Tokenizer, source: str) -> None:
    """Raise `ConfigError` unless the weights in `source` were trained with this tokenizer."""
    if Tokenizer.load(model_directory(source)) != tokenizer:
        raise ConfigError(
            f"--init-from {source}: its weights belong to its own tokenizer, and this run has "
            f"another; add --tokenizer {source}"
        )


def _take_weights(model: GPT, source: str) -> None:
    """Fill `model` with the weights in `source`. Raises `ConfigError` if the shapes differ."""
    directory = model_directory(source)
    mine = asdict(model.config)
    theirs = asdict(replace(load_config(directory), max_seq_len=model.config.max_seq_len))
    if different := [name for name in mine if mine[name] != theirs[name]]:
        what = ", ".join(f"{n} is {theirs[n]} there, {mine[n]} here" for n in different)
        remedy = " ".join(f"--set model.{n}={theirs[n]}" for n in different)
        raise ConfigError(f"--init-from {source} has another shape: {what}; add {remedy}")
    model.set_weights(read_weights(directory, model.config))
