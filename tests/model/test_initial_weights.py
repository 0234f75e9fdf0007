import math
import re
from itertools import islice
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlxgpt
from mlxgpt.model import GPT, GPTConfig, init_weights


def natural_ids(vocab: int, count: int) -> list[int]:
    """Ids of a real text, as repetitive as texts are: its letters, or its words."""
    text = (Path(mlxgpt.__file__).parent / "config.py").read_text(encoding="utf-8")
    pieces = list(text) if vocab < 1000 else re.findall(r"\w+|\s+|[^\w\s]", text)
    number = {piece: i * 7919 % vocab for i, piece in enumerate(dict.fromkeys(pieces))}
    return [number[piece] for piece in islice(pieces, count)]


def first_loss(config: GPTConfig, ids: list[int]) -> float:
    model = GPT(config)
    init_weights(model, seed=5)
    logits = np.array(model(mx.array([ids[:-1]])))[0].astype(np.float64)
    top = logits.max(-1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
    return float((total - logits[np.arange(len(ids) - 1), ids[1:]]).mean())


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(
    ("vocab", "width"),
    [
        (65, 64),
        (65, 512),
        (256, 128),
        (1024, 64),
        (1024, 384),
        (8000, 128),
        (32000, 64),
        pytest.param(65, 1024, marks=pytest.mark.slow),
        pytest.param(32000, 1024, marks=pytest.mark.slow),
    ],
)
def test_the_first_loss_is_that_of_a_guess(vocab: int, width: int, tied: bool) -> None:
    config = GPTConfig(
        n_layer=1, n_embd=width, n_head=2, intermediate_size=64, vocab_size=vocab,
        tie_embeddings=tied,
    )  # fmt: skip
    count = 257 if vocab * width < 2**21 else 65
    random = np.random.Generator(np.random.Philox(key=3)).integers(0, vocab, count).tolist()
    for ids in (random, natural_ids(vocab, count)):
        assert first_loss(config, ids) == pytest.approx(math.log(vocab), rel=0.02)


def test_weights_are_a_function_of_the_seed_and_their_own_name() -> None:
    def made(seed: int, **fields: int) -> dict[str, np.ndarray]:
        model = GPT(
            GPTConfig(**{"n_layer": 2, "n_embd": 16, "n_head": 2, "vocab_size": 50}, **fields)
        )
        init_weights(model, seed)
        return {n: np.array(w) for n, w in model.weights().items()}

    mx.random.seed(1)
    first = made(7)
    mx.random.seed(2)
    mx.random.normal((100,))
    again, other = made(7), made(8)
    deeper = made(7, intermediate_size=96)
    assert all(np.array_equal(first[n], again[n]) for n in first)
    drawn = [n for n, w in first.items() if len(np.unique(w)) > 1]
    assert len(drawn) == 1 + 2 * 5
    assert not any(np.array_equal(first[n], other[n]) for n in drawn)
    # another shape of one matrix, and one made earlier or later, leaves the rest alone
    assert all(np.array_equal(first[n], deeper[n]) for n in first if "mlp" not in n)
    drawn_values = [first[n].ravel()[:16] / first[n].std() for n in drawn]
    for i, a in enumerate(drawn_values):
        assert not any(np.allclose(a, b, atol=1e-3) for b in drawn_values[:i])


def test_matrices_keep_the_size_of_what_they_read_and_blocks_start_as_the_identity() -> None:
    model = GPT(GPTConfig(n_layer=1, n_embd=256, n_head=4, vocab_size=300, tie_embeddings=False))
    init_weights(model, 0)
    for name, w in model.weights().items():
        values = np.array(w)
        assert values.dtype == np.float32
        if w.ndim == 1:
            assert (values == 1).all(), name
        elif re.search("o_proj|down_proj|lm_head", name):
            assert (values == 0).all(), name
        else:
            expected = 1 / 256 if "embed" in name else 1 / 16
            assert values.std() == pytest.approx(expected, rel=0.02), name
    ids = mx.array([[1, 2, 3]])
    features = model.model.norm(model.model.embed_tokens(ids))
    assert mx.array_equal(model.features(ids), features)
