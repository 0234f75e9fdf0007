"""The adapter that training begins with: it changes nothing, and what was asked for can change."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from random_adapters import ALL, IDS, QUERIES, difference, paths

from mlxgpt.checkpoint.adapters import Adapter, attach, check_fit
from mlxgpt.checkpoint.adapters.fresh import fresh_adapter, train_only, trained_names
from mlxgpt.errors import ConfigError
from mlxgpt.model import GPT, Quantization, quantize_modules

Maker = Callable[..., GPT]
SHAPE = {"n_embd": 64, "n_layer": 3, "tie_embeddings": False}
METHODS = pytest.mark.parametrize("method", ["lora", "dora"])


def fresh(model: GPT, method: Any = "lora", **changes: Any) -> Adapter:
    settings = {"rank": 4, "scale": 2.0, "dropout": 0.0, "num_layers": None, "targets": None}
    return fresh_adapter(model, method=method, **({"seed": 0} | settings | changes))


def packed(model: GPT, bits: int, dtype: mx.Dtype) -> GPT:
    how = Quantization(bits=bits, group_size=32)
    names = [n.removesuffix(".weight") for n, w in model.weights().items() if w.ndim == 2]
    model.set_dtype(dtype)
    quantize_modules(model, dict.fromkeys(names, how))
    return model


BASES: dict[str, Callable[[GPT], GPT]] = {
    "float32": lambda model: model,
    "4 bits": lambda model: packed(model, 4, mx.float32),
    "3 bits, bfloat16": lambda model: packed(model, 3, mx.bfloat16),
    "tied embedding too": lambda model: model,
}


@METHODS
@pytest.mark.parametrize("base", BASES)
def test_the_first_logits_are_those_of_the_base(random_gpt: Maker, base: str, method: str) -> None:
    tied = "tied" in base
    model = BASES[base](random_gpt(**SHAPE | {"tie_embeddings": tied}))
    plain = model(IDS).astype(mx.float32)
    extra = ("model.embed_tokens",) if tied else ("lm_head",)
    attach(model, fresh(model, method, targets=("q_proj", "mlp.down_proj", *extra)))
    logits = model(IDS).astype(mx.float32)
    if method == "lora":
        assert mx.array_equal(logits, plain)
    else:
        assert difference(logits, plain) < 1e-5


@METHODS
def test_what_is_trained_is_the_adapter_by_its_names_in_files(
    random_gpt: Maker, method: str
) -> None:
    model = random_gpt(**SHAPE)
    attach(model, fresh(model, method, num_layers=2))
    parts = ("lora_a", "lora_b", "m") if method == "dora" else ("lora_a", "lora_b")
    expected = {f"{path}.{part}" for path in paths([1, 2], ALL) for part in parts}
    trained = dict(tree_flatten(model.trainable_parameters()))
    assert set(trained) == expected
    assert all(array.dtype == mx.float32 for array in trained.values())
    one = trained["model.layers.1.mlp.down_proj.lora_a"]
    bound = one.shape[0] ** -0.5
    assert 0.9 * bound < float(mx.abs(one).max().item()) <= bound
    assert abs(float(one.mean().item())) < 0.15 * bound
    assert (trained["model.layers.2.mlp.down_proj.lora_b"] == 0).all()


def test_it_is_a_function_of_the_seed_and_of_the_place(random_gpt: Maker) -> None:
    model = random_gpt(**SHAPE)
    path = "model.layers.2.self_attn.q_proj"
    one = fresh(model).modules[path].a
    assert mx.array_equal(fresh(model, targets=("q_proj",), num_layers=1).modules[path].a, one)
    assert not mx.array_equal(fresh(model, seed=1).modules[path].a, one)
    assert not mx.array_equal(fresh(model).modules["model.layers.1.self_attn.q_proj"].a, one)


def test_names_may_be_short_or_relative(random_gpt: Maker) -> None:
    model = random_gpt(**SHAPE)
    assert set(fresh(model).modules) == set(paths(range(3), ALL))
    for names in (("q_proj", "v_proj"), QUERIES, ("q_proj", *QUERIES)):
        assert set(fresh(model, targets=names).modules) == set(paths(range(3), QUERIES))
    head = fresh(model, targets=("lm_head", "q_proj"), num_layers=1)
    assert set(head.modules) == {"lm_head", "model.layers.2.self_attn.q_proj"}
    check_fit(head, model.config)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_porj",), r"no matrix 'q_porj' to change; did you mean 'q_proj'\?"),
        (("attn.q_proj",), r"did you mean 'self_attn.q_proj'\?"),
        (("q_proj", "norm"), "no matrix 'norm'"),
        (("embed_tokens",), r"did you mean 'model.embed_tokens'\?"),
        (("lm_head",), r"no matrix 'lm_head' to change \(in this model it is the embedding\)"),
        (("model.layers.0.self_attn.q_proj",), "no matrix"),
    ],
)
def test_a_name_that_is_none_is_refused(
    random_gpt: Maker, targets: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        fresh(random_gpt(), targets=targets)


@pytest.mark.parametrize("count", [0, 4, -1])
def test_there_are_only_so_many_layers(random_gpt: Maker, count: int) -> None:
    words = f"'num_layers' must be from 1 to 3, the layers of this model; got {count}"
    model = random_gpt(**SHAPE)
    with pytest.raises(ConfigError, match=words):
        fresh(model, num_layers=count)
    with pytest.raises(ConfigError, match=words):
        trained_names(model.config, count)


def test_the_length_of_packed_rows_is_that_of_what_they_stand_for(random_gpt: Maker) -> None:
    model = packed(random_gpt(**SHAPE), 4, mx.bfloat16)
    path = "model.layers.0.mlp.up_proj"
    module: Any = dict(model.named_modules())[path]
    whole = mx.dequantize(
        module.weight, module.scales, module.biases, group_size=32, bits=4, dtype=mx.float32
    )
    m = fresh(model, "dora").modules[path].m
    assert m is not None
    assert mx.allclose(m, mx.linalg.norm(whole, axis=1), rtol=1e-6)


def test_whole_weights_the_last_layers_or_all(random_gpt: Maker) -> None:
    model = random_gpt(**SHAPE, qk_norm=True)
    assert trained_names(model.config, None) == set(model.weights())
    assert train_only(model, trained_names(model.config, None)) is None
    assert set(dict(tree_flatten(model.trainable_parameters()))) == set(model.weights())
    names = trained_names(model.config, 2)
    assert names == {
        n for n in model.weights() if n.startswith(("model.layers.1", "model.layers.2"))
    }
    adapter = train_only(model, names)
    assert adapter is not None
    assert adapter.fine_tune_type == "full"
    assert set(dict(tree_flatten(model.trainable_parameters()))) == names == set(adapter.weights)
    check_fit(adapter, model.config)
