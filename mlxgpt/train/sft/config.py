"""What a fine-tuning is: every setting, with its default, checked; written to `run.yaml`."""

from dataclasses import dataclass, field
from typing import Literal

from mlxgpt.config import require
from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.train.config import RunConfig

Method = Literal["lora", "dora", "full"]


@dataclass(frozen=True, kw_only=True)
class TuningConfig:
    """Which weights are trained."""

    method: Method = "lora"
    """`lora` and `dora`: low-rank changes beside the frozen base; `full`: the base itself."""
    rank: int | None = None
    """Inner size of a low-rank change; None: 8."""
    scale: float | None = None
    """What the product of its two matrices is multiplied with (PEFT: alpha / rank); None: 2."""
    dropout: float | None = None
    """Share of the input that a low-rank change does not see, in training only; None: 0."""
    num_layers: int | None = None
    """Train this many layers, counted from the end; None: all."""
    targets: tuple[str, ...] | None = None
    """Matrices of a layer to change, such as `q_proj` or `self_attn.q_proj`; None: all seven."""

    def __post_init__(self) -> None:
        if self.method != "full":
            for name, default in (("rank", 8), ("scale", 2.0), ("dropout", 0.0)):
                if getattr(self, name) is None:
                    object.__setattr__(self, name, default)
        for name in ("rank", "scale", "dropout", "targets"):
            require(
                self.method != "full" or getattr(self, name) is None,
                f"'tuning.{name}' has no effect on method full; leave it out, or set it to null",
            )
        for name in ("rank", "num_layers"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"'tuning.{name}' must be at least 1; got {value}")
        require(
            self.scale is None or 0 < abs(self.scale) < float("inf"),
            f"'tuning.scale' must be a number other than 0; got {self.scale}",
        )
        require(
            self.dropout is None or 0 <= self.dropout < 1,
            f"'tuning.dropout' must be from 0 to below 1; got {self.dropout}",
        )
        require(self.targets is None or len(self.targets) > 0, "'tuning.targets' must not be empty")


@dataclass(frozen=True, kw_only=True)
class SFTConfig(RunConfig):
    """One fine-tuning run."""

    base: str
    """The model to start from: a run, a directory, a GGUF file or a name on the Hub."""
    data: SFTDataConfig
    """Which rows, and how they are drawn."""
    tuning: TuningConfig = field(default_factory=TuningConfig)
    """Which weights are trained."""
    micro_batch_size: int = 4
    """Rows in one forward and backward pass."""
    epochs: float | None = None
    """Passes over the examples, in the place of `steps`; None without `steps`: 1."""
    checkpoint_layers: bool = False
    """Compute each layer again on the way back instead of keeping what it computed: less memory,
    about a third more time."""
    logits_chunk: int | None = None
    """Tokens whose logits exist at once; None: as many as fit into 64 MiB."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self.steps is None or self.epochs is None,
            "'steps' and 'epochs' say the same in two ways; give one of them",
        )
        require(
            self.epochs is None or 0 < self.epochs < float("inf"),
            f"'epochs' must be above 0; got {self.epochs}",
        )
        require(
            self.logits_chunk is None or self.logits_chunk >= 1,
            f"'logits_chunk' must be at least 1; got {self.logits_chunk}",
        )
