"""What a full cache holds with fewer key/value heads: measured on the buffers' contents."""

import mlx.core as mx

from benchmarks.harness import show
from mlxgpt.infer import KVCache
from mlxgpt.model import GPT, GPTConfig, init_weights, kv_bytes_per_token, num_parameters, preset

CONTEXT = 1024


def main() -> None:
    rows = []
    for kv_heads in (12, 4, 2, 1):
        fields = preset("75m") | {"n_kv_head": kv_heads, "max_seq_len": CONTEXT}
        config = GPTConfig(**fields, vocab_size=512)
        model = GPT(config)
        init_weights(model, 0)
        cache = KVCache(config.n_layer)
        ids = mx.zeros((1, CONTEXT), dtype=mx.int32)
        mx.eval(model.features(ids, cache))
        per_token = kv_bytes_per_token(config)
        rows.append(
            (
                {12: "MHA, 12", 1: "MQA, 1"}.get(kv_heads, f"GQA, {kv_heads}"),
                f"{num_parameters(config) / 1e6:.1f} M",
                f"{per_token:,}",
                f"{per_token * CONTEXT / 2**20:.1f} MiB",
                f"{cache.nbytes / 2**20:.1f} MiB",
            )
        )
    show(
        f"key/value cache, 75m, {CONTEXT} tokens, float32",
        ("key/value heads", "parameters", "bytes a token", "needed", "buffers"),
        rows,
        "buffers grow in steps of 256 tokens and keep room for as many more",
    )
