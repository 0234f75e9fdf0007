"""What a config costs: parameters, floating-point operations, key/value bytes.

All are closed formulas of the config, checked in the tests against the real arrays.
"""

from mlxgpt.model.config import GPTConfig


def num_parameters(config: GPTConfig) -> int:
    """Return the number of parameters; a tied embedding counts once."""
    return config.vocab * config.n_embd * (1 if config.tie_embeddings else 2) + non_embedding(
        config
    )


def non_embedding(config: GPTConfig) -> int:
    """Return the number of parameters outside the embedding and the output head."""
    c, d = config.n_embd, config.head_size
    attention = c * d * (2 * config.n_head + 2 * config.kv_heads)
    return config.n_layer * (attention + 3 * c * config.mlp_size) + _vectors(config)


def _vectors(config: GPTConfig) -> int:
    """Return the number of gains and biases."""
    c, d, f = config.n_embd, config.head_size, config.mlp_size
    layer = 2 * c + config.o_bias * c + config.mlp_bias * (2 * f + c) + config.qk_norm * 2 * d
    layer += config.qkv_bias * d * (config.n_head + 2 * config.kv_heads)
    return config.n_layer * layer + c


def forward_flops_per_token(config: GPTConfig, context: int) -> int:
    """Return the floating-point operations of one token's forward pass in a window of `context`.

    A multiply-add counts 2. Matrices (the head included, the embedding look-up not) cost 2 per
    weight; attention costs 4 D per head and visible key, and the causal mean is (context + 1) / 2
    keys. Norms, biases, rotary, softmax and SwiGLU's products are left out, as is usual.
    """
    matrices = non_embedding(config) - _vectors(config) + config.vocab * config.n_embd
    attention = config.n_layer * config.n_head * config.head_size * 2 * (context + 1)
    return 2 * matrices + attention


def train_flops_per_token(config: GPTConfig, context: int) -> int:
    """Return the operations of forward and backward: three times the forward pass.

    This is the numerator of the MFU (Chowdhery et al., 2022, appendix B), here without the half of
    the attention matrix that the causal mask hides.
    """
    return 3 * forward_flops_per_token(config, context)


def kv_bytes_per_token(config: GPTConfig, bytes_per_number: int = 4) -> int:
    """Return the bytes that one token occupies in the key/value cache of all layers."""
    return 2 * config.n_layer * config.kv_heads * config.head_size * bytes_per_number
