"""A network takes over the weights of a model: nothing twice in memory, nothing changed."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from step_texts import PlainStep, StepText

from mlxgpt.checkpoint import save_model
from mlxgpt.infer.network.fused_network import FusedNetwork
from mlxgpt.infer.network.network import GPTNetwork, Network, network_for
from mlxgpt.model import GPT
from mlxgpt.text import train_char

Make = Callable[..., GPT]
IDS = [3, 1, 4, 1, 5, 9, 2, 6]
FORMS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_embeddings": False, "qkv_bias": True, "o_bias": True, "mlp_bias": True},
}


@pytest.fixture
def gpt(random_gpt: Make) -> GPT:
    return random_gpt(n_embd=128, vocab_size=300)


def logits_of(network: Network) -> mx.array:
    step = PlainStep([StepText()], [len(IDS)])
    return network(mx.array(IDS, dtype=mx.int32), step, mx.arange(len(IDS)))


def plain(model: GPT) -> mx.array:
    return model(mx.array([IDS]))[0]


def close(a: mx.array, b: mx.array) -> bool:
    return mx.allclose(a, b, atol=1e-4, rtol=1e-4).item()  # type: ignore[return-value]


@pytest.mark.parametrize("form", FORMS)
def test_the_model_has_the_same_weights_and_logits(form: str, random_gpt: Make) -> None:
    model = random_gpt(**FORMS[form])
    before = {name: np.array(w) for name, w in model.weights().items()}
    expected = plain(model)
    mx.eval(expected)
    FusedNetwork(model)
    after = model.weights()
    assert list(after) == list(before)
    for name, w in after.items():
        assert np.array_equal(np.array(w), before[name]), name
    assert mx.allclose(plain(model), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_the_model_is_saved_as_before(form: str, random_gpt: Make, tmp_path: Path) -> None:
    tokenizer = train_char(["abcdefgh"])
    model = random_gpt(**FORMS[form])
    save_model(tmp_path / "before", model, tokenizer)
    FusedNetwork(model)
    save_model(tmp_path / "after", model, tokenizer)
    one, two = (tmp_path / x / "model.safetensors" for x in ("before", "after"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_no_matrix_is_in_memory_twice(form: str, random_gpt: Make) -> None:
    sizes = {"n_layer": 4, "n_embd": 256, "n_head": 4, "n_kv_head": 2, "vocab_size": 2000}
    model = random_gpt(**sizes, **FORMS[form])
    gc.collect()
    largest = max(w.nbytes for w in model.weights().values())
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    network = network_for(model)
    assert mx.get_active_memory() - before < 100_000  # of 10 to 12 million
    assert mx.get_peak_memory() - before < largest + 100_000
    mx.eval(logits_of(network))
    assert network_for(model) is network
    del network
    FusedNetwork(model)
    gc.collect()
    assert mx.get_active_memory() - before < 100_000


def test_a_model_without_its_network_still_has_its_weights(gpt: GPT) -> None:
    expected = logits_of(network_for(gpt))
    mx.eval(expected)
    gc.collect()
    assert close(plain(gpt), expected)
    assert close(logits_of(network_for(gpt)), expected)


def test_a_model_has_one_network_until_its_weights_change(gpt: GPT, random_gpt: Make) -> None:
    first = network_for(gpt)
    assert network_for(gpt) is first
    assert not first.stale()
    other = random_gpt(1, n_embd=128, vocab_size=300)
    gpt.set_weights(other.weights())
    assert first.stale()
    second = network_for(gpt)
    assert second is not first
    assert first.stale()
    assert not second.stale()
    assert close(logits_of(second), plain(other))
    assert not close(logits_of(first), plain(other))
    assert network_for(other) is not second


def test_a_network_that_runs_the_model_itself_follows_it(gpt: GPT, random_gpt: Make) -> None:
    network = GPTNetwork(gpt)
    other = random_gpt(1, n_embd=128, vocab_size=300)
    gpt.set_weights(other.weights())
    assert network.stale()
    assert close(logits_of(network), plain(other))
    assert not GPTNetwork(gpt).stale()


def test_training_goes_on_from_views(gpt: GPT) -> None:
    """Gradients of the views are those of the weights."""

    def loss(weights: dict[str, mx.array]) -> mx.array:
        gpt.set_weights(weights)
        return plain(gpt).square().mean()

    before = {name: w + 0 for name, w in gpt.weights().items()}
    expected = mx.grad(loss)(before)
    gpt.set_weights(before)
    FusedNetwork(gpt)
    got = mx.grad(loss)(gpt.weights())
    for name, gradient in expected.items():
        assert mx.allclose(gradient, got[name], rtol=1e-4, atol=1e-5), name
