from collections.abc import Callable

import mlx.core as mx
import numpy as np
import numpy_llama
import pytest

from mlxgpt.model import GPT, CausalAttend, SegmentAttend

Make = Callable[..., GPT]

SHAPES = {
    "grouped": {},
    "multi-head": {"n_kv_head": 4},
    "multi-query, untied": {"n_kv_head": 1, "tie_embeddings": False},
    "own head size": {"n_embd": 40, "n_head": 9, "n_kv_head": 3, "head_dim": 14},
    "one layer": {"n_layer": 1, "rope_theta": 500.0, "rms_norm_eps": 1e-2},
}


def some_ids(count: int, vocab: int = 61, seed: int = 0) -> list[int]:
    return np.random.Generator(np.random.Philox(key=seed)).integers(0, vocab, count).tolist()


@pytest.mark.parametrize("fields", SHAPES.values(), ids=SHAPES)
def test_logits_are_those_of_the_papers(fields: dict, random_gpt: Make) -> None:
    model = random_gpt(**fields)
    ids = some_ids(20)
    np.testing.assert_allclose(
        np.array(model(mx.array([ids])))[0], numpy_llama.logits(model, ids), atol=1e-4
    )


def test_logits_of_a_long_batch_and_of_a_window(random_gpt: Make) -> None:
    model = random_gpt(n_embd=64, n_kv_head=2)
    rows = [some_ids(96, seed=i) for i in range(3)]
    plain = np.array(model(mx.array(rows)))
    windowed = np.array(model(mx.array(rows), CausalAttend(7)))
    np.testing.assert_allclose(plain[1], numpy_llama.logits(model, rows[1]), atol=1e-4)
    expected = numpy_llama.logits(model, rows[2], window=7)
    np.testing.assert_allclose(windowed[2], expected, atol=1e-4)


def test_the_parts_make_the_whole(random_gpt: Make) -> None:
    for tied in (True, False):
        model = random_gpt(tie_embeddings=tied)
        ids = mx.array([some_ids(9)])
        assert mx.array_equal(model.head(model.features(ids)), model(ids))
        last = model.head(model.features(ids)[:, -1])
        assert mx.allclose(last, model(ids)[:, -1], atol=1e-5)


@pytest.mark.parametrize("length", [12, 96])
def test_no_token_sees_a_later_one(length: int, random_gpt: Make) -> None:
    model = random_gpt()
    ids = some_ids(length)
    before = model(mx.array([ids]))
    for changed in {1, 2, length // 2, length - 1}:
        other = [*ids[:changed], (ids[changed] + 1) % 61, *ids[changed + 1 :]]
        after = model(mx.array([other]))
        assert mx.array_equal(before[:, :changed], after[:, :changed])
        assert not mx.allclose(before[:, changed:], after[:, changed:], atol=1e-3)


PACKS = [[3, 5], [3, 2, 4, 1], [40, 30, 26]]


@pytest.mark.parametrize("lengths", PACKS, ids=str)
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_packed_texts_give_the_logits_of_the_single_ones(
    lengths: list[int], kv_heads: int, random_gpt: Make
) -> None:
    model = random_gpt(n_kv_head=kv_heads)
    texts = [some_ids(n, seed=i) for i, n in enumerate(lengths)]
    padding = 2
    row = [i for text in texts for i in text] + [0] * padding
    numbers = [i for i, n in enumerate(lengths, start=1) for _ in range(n)] + [0] * padding
    segments = mx.array([numbers, numbers])
    packed = model(mx.array([row, row]), SegmentAttend(segments))
    assert mx.isfinite(packed).all()
    start = 0
    for text in texts:
        single = model(mx.array([text]))
        for b in range(2):
            piece = packed[b, start : start + len(text)]
            assert mx.allclose(piece, single[0], atol=1e-4, rtol=0)
        start += len(text)


def test_a_change_in_one_packed_text_leaves_the_others_bit_equal(random_gpt: Make) -> None:
    model = random_gpt()
    segments = mx.array([[1, 1, 1, 2, 2, 2, 2, 2, 3, 3]])
    ids = some_ids(10)
    before = model(mx.array([ids]), SegmentAttend(segments))
    for changed in range(3):
        other = [*ids[:changed], (ids[changed] + 1) % 61, *ids[changed + 1 :]]
        after = model(mx.array([other]), SegmentAttend(segments))
        assert mx.array_equal(before[:, 3:], after[:, 3:])
        assert not mx.array_equal(before[:, :3], after[:, :3])


def test_a_tied_embedding_is_one_tensor_that_learns_from_both_uses(random_gpt: Make) -> None:
    import mlx.nn as nn

    model = random_gpt(tie_embeddings=True)
    ids = mx.array([some_ids(8)])
    assert "lm_head.weight" not in model.weights()

    def loss(model: GPT) -> mx.array:
        return mx.logsumexp(model(ids), axis=-1).sum()

    _, gradients = nn.value_and_grad(model, loss)(model)
    gradient = gradients["model"]["embed_tokens"]["weight"]
    unused = [i for i in range(61) if i not in set(ids[0].tolist())]
    assert mx.abs(gradient[mx.array(unused)]).min() > 0  # the head reaches every row
    untied = random_gpt(tie_embeddings=False)
    _, gradients = nn.value_and_grad(untied, loss)(untied)
    assert mx.abs(gradients["model"]["embed_tokens"]["weight"][mx.array(unused)]).max() == 0
