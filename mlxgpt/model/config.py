"""The shape of a GPT: what every layer, cache and checkpoint is derived from."""

from dataclasses import asdict, dataclass, replace

from mlxgpt.config import require
from mlxgpt.errors import ConfigError
from mlxgpt.model.rope_scaling import RopeScaling


@dataclass(frozen=True, kw_only=True)
class GPTConfig:
    """The shape of a GPT of the Llama recipe (Touvron et al., 2023): RMSNorm, RoPE, SwiGLU, GQA.

    The last fields are where other families differ from Llama: Qwen 2 has `qkv_bias`, Qwen 3
    `qk_norm`, Mistral a `sliding_window`, SmolLM 3 `no_rope_layers`.

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
    rope_scaling: RopeScaling | None = None
    """How rotary positions are stretched; None: not at all."""
    no_rope_layers: tuple[int, ...] = ()
    """Layers (counted from 0) that know no positions."""
    sliding_window: int | None = None
    """How many tokens, itself included, a token sees in the `sliding_layers`; None: all."""
    sliding_layers: tuple[int, ...] | None = None
    """Layers with that window; None: every layer."""
    qkv_bias: bool = False
    """Add a bias to queries, keys and values."""
    o_bias: bool = False
    """Add a bias to the output of attention."""
    mlp_bias: bool = False
    """Add a bias to each matrix of the SwiGLU."""
    qk_norm: bool = False
    """Normalize each head of queries and keys (RMSNorm with gains) before it is rotated."""

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

        require(
            self.sliding_window is None or self.sliding_window >= 1,
            f"'sliding_window' must be at least 1; got {self.sliding_window}",
        )
        require(
            self.sliding_layers is None or self.sliding_window is not None,
            "'sliding_layers' has no effect without a 'sliding_window'",
        )
        for name in ("no_rope_layers", "sliding_layers"):
            layers = sorted(set(getattr(self, name) or ()))
            require(
                not layers or 0 <= layers[0] <= layers[-1] < self.n_layer,
                f"'{name}' names layers from 0 to {self.n_layer - 1}; got {layers}",
            )
            if getattr(self, name) is not None:
                object.__setattr__(self, name, tuple(layers))
        if self.sliding_layers is not None:  # one form for each network
            if not self.sliding_layers:
                object.__setattr__(self, "sliding_window", None)
            if len(self.sliding_layers) in (0, self.n_layer):
                object.__setattr__(self, "sliding_layers", None)

    def window(self, layer: int) -> int | None:
        """Return how many tokens layer `layer` looks back, itself included; None: all."""
        slides = self.sliding_layers is None or layer in self.sliding_layers
        return self.sliding_window if slides else None

    @property
    def context(self) -> int:
        """Number of tokens that the network can use at once: `max_seq_len`, which for two ways
        of stretching is often still the context before it."""
        scaling = self.rope_scaling
        if scaling is None or scaling.rope_type not in ("dynamic", "yarn"):
            return self.max_seq_len
        return max(self.max_seq_len, int(scaling.original * scaling.factor))

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
