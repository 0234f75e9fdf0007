"""What was asked for to write faster, or in less memory -> the writer that does so."""

from dataclasses import dataclass, replace

import mlx.core as mx

from mlxgpt.checkpoint import Checkpoint, load_model, load_tokenizer, open_checkpoint
from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.checkpoint.foreign import ForeignArchitecture
from mlxgpt.cli.fingerprint import model_fingerprint
from mlxgpt.cli.writers import EngineWriter, PlainWriter, Writer
from mlxgpt.errors import ConfigError
from mlxgpt.infer.engine.settings import EngineSettings
from mlxgpt.infer.language_model import SlidingGPT
from mlxgpt.infer.paged import Pool
from mlxgpt.infer.quantized_kv_cache import QuantizedKVCache
from mlxgpt.infer.speculative import DraftModel, NGram, Proposer, Vocabulary, check_vocabularies
from mlxgpt.machine.memory import available_memory
from mlxgpt.model import GPT
from mlxgpt.text import Tokenizer

NGRAM = "ngram"


@dataclass(frozen=True, kw_only=True)
class Acceleration:
    """What the command line says of it, in values that make sense; None: nothing."""

    draft: str | None = None
    num_draft_tokens: int | None = None
    kv_memory: int | None = None
    kv_bits: int | None = None
    max_batch: int | None = None

    def settings(self) -> EngineSettings:
        """Return those of an engine. Raises `ConfigError`."""
        settings = EngineSettings(kv_memory=self.kv_memory)
        if self.max_batch is not None:
            settings = replace(settings, max_num_seqs=self.max_batch)
        if self.num_draft_tokens is not None:
            settings = replace(settings, num_draft_tokens=self.num_draft_tokens)
        return settings


class WriterPlan:
    """How a model's texts will be written, decided before any weight is read."""

    def __init__(
        self, wanted: Acceleration, model: str, checkpoint: Checkpoint, tokenizer: Tokenizer
    ) -> None:
        """`model` is what the user calls it.

        Raises `ConfigError` for what is not possible with this model, and for a draft model with
        another vocabulary; `CheckpointError` for one that cannot be opened.
        """
        self._wanted = wanted
        self._tokenizer = tokenizer
        self.plain_because = why_not_in_engine(checkpoint)
        """Why texts are written one after the other, by the plain loop; None: they are not."""
        if self.plain_because is not None:
            for option, value in (("--draft", wanted.draft), ("--kv-memory", wanted.kv_memory)):
                if value is not None:
                    raise ConfigError(
                        f"{option} is not possible with {model}: {self.plain_because}"
                    )
        if wanted.kv_bits is not None:
            if is_foreign(checkpoint):
                raise ConfigError(f"--kv-bits is not possible with {model}: {self.plain_because}")
            QuantizedKVCache(1, head_dim=checkpoint.config.head_size, bits=wanted.kv_bits)  # raises
        self._draft: Checkpoint | None = None
        self._loaded_draft: GPT | None = None
        if wanted.draft not in (None, NGRAM):
            self._draft = _open_draft(wanted.draft, tokenizer)

    @property
    def at_once(self) -> int:
        """How many texts are written at once, at most."""
        return 1 if self.plain_because else self._wanted.settings().max_num_seqs

    def drawn_by(self) -> str:
        """Return a text that differs if what is drawn could, with equal model and seeds.

        A draft model draws its guesses, so a sampled text depends on it and on how many it makes.
        """
        draft = self._draft_network()
        if draft is None:
            return ""
        return f"{model_fingerprint(draft)} {self._wanted.settings().num_draft_tokens}"

    def writer(self, network: GPT | BorrowedModel, *, alone: bool = False) -> Writer:
        """Return a writer; `alone` says that it will write a single text."""
        wanted = self._wanted
        if isinstance(network, GPT) and wanted.kv_bits is not None:
            return PlainWriter(SlidingGPT(network, wanted.kv_bits), self._tokenizer)
        on_gpu = mx.default_device().type == mx.DeviceType.gpu
        if alone and on_gpu and wanted == Acceleration():
            # The plain loop has the next token computed while this one is shown.
            return PlainWriter(network, self._tokenizer)
        if not isinstance(network, GPT) or self.plain_because:
            return PlainWriter(network, self._tokenizer)
        settings = wanted.settings()
        proposer: Proposer | None = NGram() if wanted.draft == NGRAM else None
        if (draft := self._draft_network()) is not None:
            memory, draft_memory = shares(settings.kv_memory, network, draft, settings.block_size)
            settings = replace(settings, kv_memory=memory)
            proposer = DraftModel(
                draft,
                num_ids=self._tokenizer.vocab_size,
                kv_memory=draft_memory,
                block_size=settings.block_size,
                max_step_tokens=settings.max_step_tokens,
            )
        return EngineWriter(network, self._tokenizer, proposer=proposer, settings=settings)

    def _draft_network(self) -> GPT | None:
        """Return the draft model, loaded the first time; None: there is none."""
        if self._loaded_draft is None and self._draft is not None:
            draft = load_model(self._draft)
            assert isinstance(draft, GPT)
            self._loaded_draft = draft
        return self._loaded_draft


def shares(
    kv_memory: int | None, network: GPT, draft: GPT, block_size: int
) -> tuple[int | None, int | None]:
    """Part the memory for keys and values so that both models can hold as many tokens.

    None: what each may take where nothing was asked for, half of what is available in all.
    """
    if kv_memory is None:
        available = available_memory()
        if available is None:
            return None, None
        kv_memory = available // 2
    one, other = (Pool.for_model(m, block_size).bytes_per_block for m in (network, draft))
    for_draft = kv_memory * other // (one + other)
    return kv_memory - for_draft, max(for_draft, 1)


def why_not_in_engine(checkpoint: Checkpoint) -> str | None:
    """Return why the engine does not run a model, as the end of a sentence; None: it does."""
    if is_foreign(checkpoint):
        return f"architecture '{checkpoint.family}' is run by mlx-lm"
    scaling = checkpoint.config.rope_scaling
    if scaling is not None and scaling.rope_type == "dynamic":
        return "its rotary positions depend on the length of the text (type dynamic)"
    return None


def is_foreign(checkpoint: Checkpoint) -> bool:
    """Return whether a model is of an architecture that is not ours."""
    try:
        _ = checkpoint.config
    except ForeignArchitecture:
        return True
    return False


def _open_draft(name: str, tokenizer: Tokenizer) -> Checkpoint:
    checkpoint = open_checkpoint(name)
    if (why := why_not_in_engine(checkpoint)) is not None:
        raise ConfigError(f"{name} cannot be a --draft: {why}")
    check_vocabularies(_vocabulary(tokenizer), _vocabulary(load_tokenizer(checkpoint)))
    return checkpoint


def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)]
    return Vocabulary(tokens=tokens, special=tokenizer.special_tokens)
