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
    yield "model.embed_tokens.weight", (config.vocab, c)
    for i in range(config.n_layer):
        layer = f"model.layers.{i}"
        yield f"{layer}.input_layernorm.weight", (c,)
        yield f"{layer}.self_attn.q_proj.weight", (queries, c)
        yield f"{layer}.self_attn.k_proj.weight", (keys, c)
        yield f"{layer}.self_attn.v_proj.weight", (keys, c)
        yield f"{layer}.self_attn.o_proj.weight", (c, queries)
        yield f"{layer}.post_attention_layernorm.weight", (c,)
        yield f"{layer}.mlp.gate_proj.weight", (f, c)
        yield f"{layer}.mlp.up_proj.weight", (f, c)
        yield f"{layer}.mlp.down_proj.weight", (c, f)
    yield "model.norm.weight", (c,)
    if not config.tie_embeddings:
        yield "lm_head.weight", (config.vocab, c)
