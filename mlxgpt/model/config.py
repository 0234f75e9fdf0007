"""The shape of a GPT: what every layer, cache and checkpoint is derived from."""

from dataclasses import asdict, dataclass, replace

from mlxgpt.config import require
from mlxgpt.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """Sizes of a GPT of the Llama recipe (Touvron et al., 2023): RMSNorm, RoPE, SwiGLU, GQA.

    Fields that are `None` are resolved on construction, so a config that exists is complete, save
    for `vocab_size`, which a tokenizer may have to give first. Raises `ConfigError`.
    """

    n_layer: int = 4
    """Number of transformer blocks."""
    n_embd: int = 128
    """Width C of the residual stream."""
    n_head: int = 4
    """Number of query heads."""
    n_kv_head: int | None = None
    """Number of key/value heads; None: as many as query heads. 1 is MQA, in between is GQA."""
    head_dim: int | None = None
    """Size D of one head; None: n_embd / n_head."""
    intermediate_size: int | None = None
    """Width F of the SwiGLU; None: 8/3 n_embd, rounded up to a multiple of 32."""
    vocab_size: int | None = None
    """Number of token ids V; None: as many as the tokenizer has."""
    max_seq_len: int = 128
    """Number of tokens T in a training window, and the span that attention keeps in generation."""
    rope_theta: float = 10000.0
    """Base of the rotary frequencies."""
    rms_norm_eps: float = 1e-5
    """Added to the mean square in RMSNorm."""
    tie_embeddings: bool = True
    """Use the embedding matrix as the output head too."""

    def __post_init__(self) -> None:
        for name in ("n_layer", "n_embd", "n_head", "max_seq_len"):
            require(
                getattr(self, name) >= 1, f"'{name}' must be at least 1; got {getattr(self, name)}"
            )
        if self.n_kv_head is None:
            object.__setattr__(self, "n_kv_head", self.n_head)
        if self.head_dim is None:
            require(
                self.n_embd % self.n_head == 0,
                f"'n_embd' ({self.n_embd}) must be a multiple of 'n_head' ({self.n_head}), "
                "or set 'head_dim'",
            )
            object.__setattr__(self, "head_dim", self.n_embd // self.n_head)
        if self.intermediate_size is None:
            object.__setattr__(self, "intermediate_size", -(-self.n_embd * 8 // 3) + 31 & ~31)
        require(
            self.kv_heads >= 1 and self.n_head % self.kv_heads == 0,
            f"'n_head' ({self.n_head}) must be a multiple of 'n_kv_head' ({self.kv_heads})",
        )
        require(
            self.head_size >= 2 and self.head_size % 2 == 0,
            f"'head_dim' must be even (rotary pairs); got {self.head_size}",
        )
        require(self.mlp_size >= 1, f"'intermediate_size' must be at least 1; got {self.mlp_size}")
        require(
            self.vocab_size is None or self.vocab_size >= 1,
            f"'vocab_size' must be at least 1; got {self.vocab_size}",
        )
        for name, value in asdict(self).items():
            require(
                not isinstance(value, int) or value < 2**31,
                f"'{name}' must be below 2**31, which is as far as MLX counts; got {value}",
            )
        require(
            1 <= self.rope_theta <= 1e30,
            f"'rope_theta' must be between 1 and 1e30; got {self.rope_theta}",
        )
        require(
            0 < self.rms_norm_eps <= 1,
            f"'rms_norm_eps' must be above 0 and at most 1; got {self.rms_norm_eps}",
        )

    @property
    def kv_heads(self) -> int:
        """`n_kv_head`, resolved."""
        assert self.n_kv_head is not None
        return self.n_kv_head

    @property
    def head_size(self) -> int:
        """`head_dim`, resolved."""
        assert self.head_dim is not None
        return self.head_dim

    @property
    def mlp_size(self) -> int:
        """`intermediate_size`, resolved."""
        assert self.intermediate_size is not None
        return self.intermediate_size

    @property
    def vocab(self) -> int:
        """`vocab_size`, resolved. Raises `ConfigError` while no tokenizer has given it."""
        if self.vocab_size is None:
            raise ConfigError("'model.vocab_size' is not known yet: give it, or a tokenizer")
        return self.vocab_size

    def for_vocab(self, size: int) -> "GPTConfig":
        """Return this config for a tokenizer of `size` ids.

        A larger `vocab_size` of one's own is kept (the ids above are padding); a smaller one would
        leave tokens without an embedding and is refused.
        """
        if self.vocab_size is None:
            return replace(self, vocab_size=size)
        require(
            self.vocab_size >= size,
            f"the tokenizer has {size} ids, but 'model.vocab_size' is only {self.vocab_size}",
        )
        return self
