from collections.abc import Callable

import mlx.core as mx
import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.infer import KVCache, kv_cache
from mlxgpt.model import (
    GPT,
    PRESETS,
    GPTConfig,
    kv_bytes_per_token,
    non_embedding,
    num_parameters,
    preset,
    train_flops_per_token,
    weight_shapes,
)
from mlxgpt.model.cost import forward_flops_per_token

SHAPES = {
    "multi-head": {},
    "grouped": {"n_head": 4, "n_kv_head": 2},
    "multi-query": {"n_head": 4, "n_kv_head": 1},
    "untied": {"n_kv_head": 2, "tie_embeddings": False},
    "heads wider than the stream": {"n_embd": 40, "n_head": 9, "n_kv_head": 3, "head_dim": 14},
    "own mlp": {"intermediate_size": 11},
}


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
def test_parameters_are_those_of_the_arrays(fields: dict) -> None:
    config = GPTConfig(**{"n_layer": 3, "n_embd": 32, "vocab_size": 77, **fields})
    weights = GPT(config).weights()
    assert {n: tuple(w.shape) for n, w in weights.items()} == dict(weight_shapes(config))
    assert num_parameters(config) == sum(w.size for w in weights.values())
    inner = sum(w.size for n, w in weights.items() if "embed" not in n and "lm_head" not in n)
    assert non_embedding(config) == inner


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("0.8m", 803_968),
        ("3m", 2_656_704),
        ("10m", 10_621_824),
        ("23m", 23_208_448),
        ("75m", 75_516_672),
        ("270m", 265_864_192),
        ("1b", 947_349_504),
    ],
)
def test_presets_have_the_parameters_of_the_manual(name: str, parameters: int) -> None:
    config = GPTConfig(**preset(name), vocab_size=1000)
    assert non_embedding(config) == parameters
    c, heads = config.n_embd, config.n_head + config.kv_heads
    by_hand = 2 * c * heads * (c // config.n_head) + 3 * c * config.mlp_size + 2 * c
    assert parameters == config.n_layer * by_hand + c
    if parameters < 25e6:
        arrays = GPT(config).weights()
        assert sum(w.size for n, w in arrays.items() if "embed" not in n) == parameters


def test_a_preset_is_named_by_its_parameters_and_may_be_changed_by_the_reader() -> None:
    for name in PRESETS:
        unit = {"m": 1e6, "b": 1e9}[name[-1]]
        stated = float(name[:-1]) * unit
        count = non_embedding(GPTConfig(**preset(name)))
        assert abs(count / stated - 1) < 0.12, (name, count)
    preset("3m")["n_layer"] = 99
    assert preset("3m")["n_layer"] == 6
    with pytest.raises(ConfigError, match="did you mean '10m'"):
        preset("10")


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("context", [1, 7])
def test_operations_are_those_of_a_count_by_hand(fields: dict, context: int) -> None:
    config = GPTConfig(**{"n_layer": 2, "n_embd": 32, "vocab_size": 77, **fields})
    c, d, f = config.n_embd, config.head_size, config.mlp_size
    total = 0
    for token in range(context):
        for _ in range(config.n_layer):
            for rows in (config.n_head * d, config.kv_heads * d, config.kv_heads * d, f, f):
                total += 2 * rows * c  # q, k, v, gate, up
            total += 2 * c * config.n_head * d + 2 * c * f  # o, down
            for _ in range(config.n_head):
                total += (token + 1) * (2 * d + 2 * d)  # scores, then the mean of the values
        total += 2 * config.vocab * c  # the head
    assert forward_flops_per_token(config, context) == total / context
    assert train_flops_per_token(config, context) == 3 * total / context


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
def test_cache_bytes_are_those_of_the_cache(
    fields: dict, random_gpt: Callable[..., GPT], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_cache, "_GROWTH", 1)
    model = random_gpt(**fields)
    cache = KVCache(model.config.n_layer)
    sizes = []
    for _ in range(4):
        mx.eval(model(mx.zeros((1, 2), dtype=mx.int32), cache))
        sizes.append(cache.nbytes)
    token = kv_bytes_per_token(model.config)
    # a buffer has room for the tokens that it must hold, and (growth 1 here) one more
    assert sizes == [3 * token, 5 * token, 7 * token, 9 * token]
    assert kv_bytes_per_token(model.config, 2) * 2 == kv_bytes_per_token(model.config)
