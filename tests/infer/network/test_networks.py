"""A step of many texts gives the logits that the model gives for each text alone."""

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_texts import PlainStep, StepText

from mlxgpt import seeding
from mlxgpt.errors import ConfigError
from mlxgpt.infer.network import fused_network
from mlxgpt.infer.network.fused_network import FusedNetwork
from mlxgpt.infer.network.network import GPTNetwork, Network, network_for
from mlxgpt.infer.network.step_kernels import StepKernels, swiglu
from mlxgpt.machine.compiler import Compiler
from mlxgpt.model import GPT, CausalAttend, RopeScaling
from mlxgpt.model.lora import adapted, whole_matrix

Make = Callable[..., GPT]

LLAMA3 = RopeScaling(rope_type="llama3", factor=4, original_max_position_embeddings=8)
YARN = RopeScaling(rope_type="yarn", factor=3, original_max_position_embeddings=8)
DYNAMIC = RopeScaling(rope_type="dynamic", factor=2, original_max_position_embeddings=8)

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "as many key heads": {"n_kv_head": 4},
    "one key head, wide": {"n_kv_head": 1, "head_dim": 20},
    "untied, one layer": {"tie_embeddings": False, "n_layer": 1},
    "biases of qkv": {"qkv_bias": True},
    "other biases": {"o_bias": True, "mlp_bias": True, "intermediate_size": 40},
    "normalized heads": {"qk_norm": True, "rms_norm_eps": 0.1},
    "everything": {
        "qk_norm": True,
        "qkv_bias": True,
        "o_bias": True,
        "mlp_bias": True,
        "tie_embeddings": False,
        "no_rope_layers": (1,),
    },
    "layers without positions": {"n_layer": 3, "no_rope_layers": (0, 2)},
    "linear": {"rope_scaling": RopeScaling(rope_type="linear", factor=2.5), "rope_theta": 500.0},
    "llama3": {"rope_scaling": LLAMA3},
    "yarn": {"rope_scaling": YARN},
    "sliding": {"sliding_window": 5},
    "partly sliding": {"n_layer": 3, "sliding_window": 5, "sliding_layers": (1,)},
    "long context": {"max_seq_len": 100},
}


def eager(model: GPT) -> Network:
    return FusedNetwork(model, compiled=False)


KINDS: dict[str, Callable[[GPT], Network]] = {
    "gpt": GPTNetwork,
    "fused": FusedNetwork,
    "fused, eager": eager,
}


def low_rank(module: nn.Module, dora: bool) -> nn.Module:
    rows, columns = whole_matrix(module).shape
    a_rows, b_columns = (columns, rows) if "Linear" in type(module).__name__ else (rows, columns)

    def noise(name: str, *shape: int) -> mx.array:
        return 0.2 * mx.random.normal(shape, key=seeding.key(1, f"test/{name}"))

    m = 1 + mx.abs(noise("m", rows)) if dora else None
    return adapted(module, noise("a", a_rows, 3), noise("b", 3, b_columns), 1.5, m)


def with_adapter(model: GPT, dora: bool) -> GPT:
    attention, mlp = model.layers[0].self_attn, model.layers[1].mlp
    attention.k_proj = low_rank(attention.k_proj, dora)
    mlp.down_proj = low_rank(mlp.down_proj, dora)
    model.model.embed_tokens = low_rank(model.model.embed_tokens, dora)
    return model


def with_layer_norm(model: GPT) -> GPT:
    model.model.norm = nn.LayerNorm(32)
    return model


def with_eps(model: GPT) -> GPT:
    model.layers[1].input_layernorm.eps = 0.5
    return model


def with_some_biases(model: GPT) -> GPT:
    """Not a shape that a config gives."""
    model.layers[0].self_attn.k_proj.bias = mx.arange(1, 17) / 8
    model.layers[1].mlp.up_proj.bias = mx.arange(96) / 50
    return model


def quantized(model: GPT) -> GPT:
    nn.quantize(model, group_size=32, bits=8)
    return model


SPECIAL: dict[str, Callable[[Make], GPT]] = {
    "lora": lambda make: with_adapter(make(), dora=False),
    "dora": lambda make: with_adapter(make(), dora=True),
    "8 bits": lambda make: quantized(make(head_dim=8)),
    "adapter over 8 bits": lambda make: with_adapter(quantized(make(head_dim=8)), dora=False),
    "a norm of another kind": lambda make: with_layer_norm(make()),
    "a norm with an eps of its own": lambda make: with_eps(make()),
}


def ids_of(length: int, seed: int) -> list[int]:
    return np.random.Generator(np.random.Philox(key=seed)).integers(0, 61, length).tolist()


def alone(model: GPT, ids: list[int]) -> mx.array:
    """What the plain loop sees, (T, V)."""
    return model(mx.array([ids]), CausalAttend(model.config.context))[0]


def close(logits: mx.array, expected: mx.array, tolerance: float = 1e-5) -> bool:
    """Whether logits are equal to so many parts of the largest one."""
    atol = tolerance * mx.abs(expected).max().item()
    return mx.allclose(logits, expected, rtol=0, atol=atol).item()  # type: ignore[return-value]


def check(network: Network, expected: GPT, seed: int, tolerance: float = 1e-5) -> None:
    """Feed five texts in random pieces, in random company; compare what is asked for."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    ids = [ids_of(int(n), seed + i) for i, n in enumerate(rng.integers(1, 45, 5))]
    whole = [alone(expected, text) for text in ids]
    texts = [StepText() for _ in ids]
    while left := [i for i, t in enumerate(texts) if t.length < len(ids[i])]:
        chosen = rng.permutation(left)[: int(rng.integers(1, len(left) + 1))].tolist()
        counts, given, places = [], [], []
        for i in chosen:
            begin = texts[i].length
            most = len(ids[i]) - begin
            counts.append(int(rng.choice([1, min(2, most), int(rng.integers(1, most + 1))])))
            given += ids[i][begin : begin + counts[-1]]
            places += [(i, begin + j) for j in range(counts[-1])]
        wanted = rng.permutation(len(given))[: int(rng.integers(0, len(given) + 1))].tolist()
        step = PlainStep([texts[i] for i in chosen], counts)
        input_ids, at = (mx.array(x, dtype=mx.int32) for x in (given, wanted))
        logits = network(input_ids, step, at)
        assert logits.shape == (len(wanted), 61)
        assert step.layers == list(range(expected.config.n_layer))
        mx.eval(logits, [t.stored for t in texts])
        if wanted:
            due = mx.stack([whole[i][position] for i, position in (places[w] for w in wanted)])
            assert close(logits, due, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_text_gets_what_it_gets_alone(shape: str, kind: str, random_gpt: Make) -> None:
    network = KINDS[kind](random_gpt(**SHAPES[shape]))
    for seed in range(3):
        check(network, random_gpt(**SHAPES[shape]), seed)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bias_here_and_there(kind: str, random_gpt: Make) -> None:
    network = KINDS[kind](with_some_biases(random_gpt()))
    check(network, with_some_biases(random_gpt()), 0)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.sampled_from(sorted(SHAPES)), st.sampled_from(sorted(KINDS)))
def test_in_any_company(random_gpt: Make, seed: int, shape: str, kind: str) -> None:
    check(KINDS[kind](random_gpt(seed, **SHAPES[shape])), random_gpt(seed, **SHAPES[shape]), seed)


@pytest.mark.parametrize("name", SPECIAL)
def test_adapters_and_quantized_matrices(name: str, random_gpt: Make) -> None:
    network = network_for(SPECIAL[name](random_gpt))
    assert isinstance(network, GPTNetwork)
    check(network, SPECIAL[name](random_gpt), 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(mx.float16, 0.01), (mx.bfloat16, 0.05)])
def test_half_precision(dtype: mx.Dtype, tolerance: float, random_gpt: Make) -> None:
    model, same = random_gpt(), random_gpt()
    model.set_dtype(dtype)
    same.set_dtype(dtype)
    network = network_for(model)
    assert isinstance(network, GPTNetwork)
    check(network, same, 0, tolerance)


def test_a_gpu_has_its_own_kernels(random_gpt: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_gpt()
    assert isinstance(network_for(model), FusedNetwork)
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    assert isinstance(network_for(model), GPTNetwork)


@pytest.mark.parametrize("make", [network_for, GPTNetwork])
def test_dynamic_rotary_positions_cannot_be_batched(
    make: Callable[[GPT], Network], random_gpt: Make
) -> None:
    with pytest.raises(ConfigError, match="'dynamic' cannot be batched"):
        make(random_gpt(rope_scaling=DYNAMIC))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", ["plain", "llama3", "yarn", "linear"])
def test_far_positions_are_turned_by_the_same_angles(
    shape: str, kind: str, random_gpt: Make
) -> None:
    ids, first, context = ids_of(12, 1), 123_457, 300_000
    fields = SHAPES[shape] | {"max_seq_len": context}
    network = KINDS[kind](random_gpt(**fields))
    model = random_gpt(**fields)
    step = PlainStep([StepText(first)], [12])
    logits = network(mx.array(ids, dtype=mx.int32), step, mx.arange(12))

    class Far(CausalAttend):
        def offset(self, layer: int) -> mx.array:  # type: ignore[override]
            return step.positions[None]

    assert close(logits, model(mx.array([ids]), Far())[0])


@pytest.mark.parametrize("name", [*KINDS, "8 bits"])
def test_nothing_wanted_and_the_same_wanted_twice(name: str, random_gpt: Make) -> None:
    model = quantized(random_gpt(head_dim=8)) if name == "8 bits" else random_gpt()
    same = quantized(random_gpt(head_dim=8)) if name == "8 bits" else random_gpt()
    network = KINDS.get(name, GPTNetwork)(model)
    ids, text = ids_of(9, 0), StepText()
    expected = alone(same, ids)

    def step(a: int, b: int, wanted: list[int]) -> mx.array:
        attention = PlainStep([text], [b - a])
        at = mx.array(wanted, dtype=mx.int32)
        logits = network(mx.array(ids[a:b], dtype=mx.int32), attention, at)
        mx.eval(logits, text.stored)
        return logits

    assert step(0, 5, []).shape == (0, 61)
    assert text.length == 5
    assert close(step(5, 9, [3, 0, 3]), expected[mx.array([8, 5, 8])])


def test_ids_that_no_text_uses_do_not_matter(random_gpt: Make) -> None:
    model, ids = random_gpt(tie_embeddings=False), ids_of(8, 3)
    unused = mx.array([i not in ids for i in range(61)])[:, None]
    poisoned = random_gpt(tie_embeddings=False)
    embedding = poisoned.model.embed_tokens
    embedding.weight = mx.where(unused, math.nan, embedding.weight)
    for make in KINDS.values():
        step = PlainStep([StepText()], [8])
        logits = make(poisoned)(mx.array(ids, dtype=mx.int32), step, mx.arange(8))
        assert close(logits, alone(model, ids))


def test_where_nothing_can_be_compiled_it_runs_eagerly(
    random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(fused_network, "compile_available", lambda: Compiler(False, "no g++"))
    monkeypatch.setattr(mx, "compile", refuse)
    fused_network.step_kernels.cache_clear()
    check(FusedNetwork(random_gpt()), random_gpt(), 0)


def test_more_numbers_of_tokens_than_are_kept_compiled(random_gpt: Make) -> None:
    network, ids = FusedNetwork(random_gpt(n_layer=1, max_seq_len=200)), ids_of(100, 0)
    expected = alone(random_gpt(n_layer=1, max_seq_len=200), ids)
    for length in [*range(1, 100, 1), 1, 50]:
        step = PlainStep([StepText()], [length])
        last = mx.array([length - 1])
        logits = network(mx.array(ids[:length], dtype=mx.int32), step, last)
        assert close(logits[0], expected[length - 1])


@pytest.mark.parametrize("compiled", [False, True])
def test_swiglu_is_accurate(compiled: bool) -> None:
    kernels = StepKernels(1, compiled=compiled)
    gate = np.concatenate([np.linspace(-100, 100, 20001), np.linspace(-1, 1, 20001), [0, 1e30]])
    gate = gate.astype(np.float32)
    exact = gate / (1 + np.exp(-np.clip(gate.astype(np.float64), -700, 700)))
    got = np.array(kernels.swiglu(mx.array(gate[None]), mx.full((1, gate.size), 2.0)))[0] / 2
    np.testing.assert_allclose(got, exact, rtol=3e-7, atol=3e-7)
    small = np.abs(gate) < 4
    np.testing.assert_allclose(got[small], exact[small], rtol=5e-6, atol=1e-12)
    assert mx.array_equal(swiglu(mx.array([-1e30]), mx.array([1.0])), mx.array([0.0]))
