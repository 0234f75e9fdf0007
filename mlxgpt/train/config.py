"""What a training run is: every setting, with its default, checked; written to `run.yaml`."""

from dataclasses import dataclass, field
from typing import Literal

from mlxgpt.config import require
from mlxgpt.data import DataConfig
from mlxgpt.model import GPTConfig

LrSchedule = Literal["constant", "cosine", "linear", "wsd"]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig:
    """Which tokenizer a run uses."""

    source: str = "bpe"
    """`bpe` or `char`: trained on the training split; else a directory with a tokenizer.json."""
    vocab_size: int | None = None
    """Ids of a `bpe` trained here, bytes and special tokens included; None: 1024."""
    pattern: str | None = None
    """Where a `bpe` trained here splits words: gpt2, llama3, qwen2 or a regular expression; None:
    gpt2."""

    def __post_init__(self) -> None:
        require(bool(self.source), "'tokenizer.source' must be bpe, char or a directory")
        if self.source != "bpe":
            for name in ("vocab_size", "pattern"):
                require(
                    getattr(self, name) is None,
                    f"'tokenizer.{name}' is for a bpe tokenizer that is trained here, and has no "
                    f"effect on '{self.source}'; leave it out, or set it to null",
                )
            return
        object.__setattr__(self, "pattern", self.pattern or "gpt2")
        if self.vocab_size is None:
            object.__setattr__(self, "vocab_size", 1024)
        require(
            self.bpe_size >= 257,
            f"'tokenizer.vocab_size' must be at least 257 (256 bytes and the end of text); "
            f"got {self.vocab_size}",
        )

    @property
    def bpe_size(self) -> int:
        """`vocab_size` of a `bpe`, resolved."""
        assert self.vocab_size is not None
        return self.vocab_size


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How gradients become new weights."""

    name: Literal["adamw", "muon"] = "adamw"
    """`adamw` for all weights; `muon`: Muon for the matrices of the blocks, AdamW for the rest."""
    max_lr: float | None = None
    """Peak learning rate of AdamW; None: 3e-3 (128 / n_embd)^0.75."""
    lr_schedule: LrSchedule = "cosine"
    """Shape after the warm-up; `wsd` is constant and then falls linearly over the last fifth."""
    warmup_steps: int | None = None
    """Steps over which the rate rises from 0; None: 3 % of the steps."""
    min_lr_ratio: float = 0.0
    """Final rate as a share of the peak, for cosine, linear and wsd; constant has none."""
    beta1: float = 0.9
    """Decay of AdamW's mean of gradients."""
    beta2: float = 0.99
    """Decay of AdamW's mean of squared gradients."""
    eps: float = 1e-8
    """Added to AdamW's denominator."""
    weight_decay: float = 0.1
    """Decoupled decay, times the learning rate, of matrices only (gains are left alone)."""
    grad_clip: float = 1.0
    """Largest global norm of the gradients; 0 does not clip."""
    muon_lr: float | None = None
    """Peak learning rate of Muon, times sqrt(max(1, rows / columns)); None: 0.02."""
    muon_momentum: float | None = None
    """Nesterov momentum of Muon; None: 0.95."""

    def __post_init__(self) -> None:
        require(
            self.max_lr is None or 0 < self.max_lr < float("inf"),
            f"'optimizer.max_lr' must be above 0; got {self.max_lr}",
        )
        require(
            self.warmup_steps is None or self.warmup_steps >= 0,
            f"'optimizer.warmup_steps' must be 0 or above; got {self.warmup_steps}",
        )
        require(0 <= self.min_lr_ratio <= 1, "'optimizer.min_lr_ratio' must be between 0 and 1")
        require(
            self.lr_schedule != "constant" or self.min_lr_ratio == 0,
            "'optimizer.min_lr_ratio' has no effect on the constant schedule; leave it out",
        )
        self._settle_muon()
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            require(0 <= value < 1, f"'optimizer.{name}' must be in [0, 1); got {value}")
        require(self.eps > 0, f"'optimizer.eps' must be above 0; got {self.eps}")
        require(self.weight_decay >= 0, "'optimizer.weight_decay' must be 0 or above")
        require(self.grad_clip >= 0, "'optimizer.grad_clip' must be 0 or above")

    def _settle_muon(self) -> None:
        """Refuse Muon's settings where there is no Muon; fill them in where there is."""
        for name, default in (("muon_lr", 0.02), ("muon_momentum", 0.95)):
            if self.name == "muon" and getattr(self, name) is None:
                object.__setattr__(self, name, default)
            require(
                self.name == "muon" or getattr(self, name) is None,
                f"'optimizer.{name}' has no effect on {self.name}; leave it out, or set it to null",
            )
        rate, momentum = self.muon_lr, self.muon_momentum
        require(rate is None or rate > 0, f"'optimizer.muon_lr' must be above 0; got {rate}")
        require(
            momentum is None or 0 <= momentum < 1,
            f"'optimizer.muon_momentum' must be in [0, 1); got {momentum}",
        )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What any training has settings for, whatever it trains and on what."""

    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """How weights are updated."""
    steps: int | None = None
    """Number of optimizer steps."""
    micro_batch_size: int = 24
    """Rows in one forward and backward pass."""
    grad_accum_steps: int = 1
    """Micro-batches in one optimizer step."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Numbers of the forward and backward pass; weights and moments stay float32."""
    seed: int = 0
    """Decides everything random."""
    eval_every: int | None = None
    """Steps between validations; None: ten in a run. The last step is always validated."""
    val_tokens: int | None = 262144
    """Validate on at most so many tokens, spread over all there are; null: on all."""
    save_every: int | None = None
    """Steps between saves; None: as often as validations."""
    workers: int | None = None
    """Share a micro-batch among at most so many threads on a CPU device (one row each is the least,
    a GPU needs one only); None: one per core."""

    def __post_init__(self) -> None:
        for name in ("micro_batch_size", "grad_accum_steps"):
            require(
                getattr(self, name) >= 1, f"'{name}' must be at least 1; got {getattr(self, name)}"
            )
        for name in ("steps", "eval_every", "val_tokens", "save_every", "workers"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"'{name}' must be at least 1; got {value}")
        warmup = self.optimizer.warmup_steps
        require(
            warmup is None or self.steps is None or warmup <= self.steps,
            f"'optimizer.warmup_steps' ({warmup}) must not exceed 'steps' ({self.steps})",
        )

    @property
    def num_steps(self) -> int:
        """`steps` of a resolved config."""
        assert self.steps is not None
        return self.steps


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig):
    """One training run. The same config on the same machine gives the same weights, bit for bit."""

    data: DataConfig
    """Which text, and how it is split."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """How text becomes ids."""
    model: GPTConfig = field(default_factory=GPTConfig)
    """The shape of the network; `max_seq_len` is the length of the training windows."""
    steps: int = 1000
    """Number of optimizer steps."""
    dropout: float = 0.0
    """Rate on the embedding and on what each block adds, in training only."""
    init_from: str | None = None
    """Model to take the first weights from, by any name that a command takes; None: random ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.dropout < 1, f"'dropout' must be in [0, 1); got {self.dropout}")

    @property
    def tokens_per_step(self) -> int:
        """Target tokens of one optimizer step."""
        return self.micro_batch_size * self.grad_accum_steps * self.model.max_seq_len
