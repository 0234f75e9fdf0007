"""GPTConfig -> the names and shapes of the weights, without making an array."""

from collections.abc import Iterator

from mlxgpt.model.config import GPTConfig


def weight_shapes(config: GPTConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (full name, shape) of each weight, one at a time.

    So a file can be checked against a config that asks for a billion layers before anything of
    that size exists. The tests hold it against `GPT.weights`.
    """
    c, d, f = config.n_embd, config.head_size, config.mlp_size
    queries, keys = config.n_head * d, config.kv_heads * d
    biased = {"q": config.qkv_bias, "k": config.qkv_bias, "v": config.qkv_bias, "o": config.o_bias}
    rows = {"q": queries, "k": keys, "v": keys, "o": c}
    yield "model.embed_tokens.weight", (config.vocab, c)
    for i in range(config.n_layer):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (c,)
        for name, size in rows.items():
            yield f"{layer}.self_attn.{name}_proj.weight", (size, queries if name == "o" else c)
            if biased[name]:
                yield f"{layer}.self_attn.{name}_proj.bias", (size,)
        if config.qk_norm:
            yield f"{layer}.self_attn.q_norm.weight", (d,)
            yield f"{layer}.self_attn.k_norm.weight", (d,)
        yield f"{layer}.post_attention_layernorm.weight", (c,)
        for name, size, width in (("gate", f, c), ("up", f, c), ("down", c, f)):
            yield f"{layer}.mlp.{name}_proj.weight", (size, width)
            if config.mlp_bias:
                yield f"{layer}.mlp.{name}_proj.bias", (size,)
    yield "model.norm.weight", (c,)
    if not config.tie_embeddings:
        yield "lm_head.weight", (config.vocab, c)
