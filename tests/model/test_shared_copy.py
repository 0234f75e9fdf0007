"""A copy of a network shares its arrays and nothing else."""

import mlx.core as mx
from mlx.utils import tree_flatten

from mlxgpt.model import GPT, GPTConfig, init_weights
from mlxgpt.model.lora import adapted
from mlxgpt.model.shared_copy import shared_copy


def test_a_copy_has_modules_of_its_own() -> None:
    model = GPT(GPTConfig(n_layer=2, n_embd=16, n_head=2, vocab_size=20))
    init_weights(model, 0)
    model.freeze()
    block = model.layers[1].self_attn
    changed = adapted(block.q_proj, mx.ones((16, 2)), mx.ones((2, 16)), 2.0)
    block.update_modules({"q_proj": changed})
    copy = shared_copy(model)
    ids = mx.array([[1, 2, 3]])
    expected = model(ids)
    assert mx.array_equal(copy(ids), expected)
    trained = dict(tree_flatten(copy.trainable_parameters()))
    assert sorted(trained) == [f"model.layers.1.self_attn.q_proj.lora_{x}" for x in "ab"]
    copy.set_weights({name: w + 1 for name, w in copy.weights().items()})
    assert not mx.array_equal(copy(ids), expected)
    assert mx.array_equal(model(ids), expected)
    copy.unfreeze()
    assert dict(tree_flatten(model.trainable_parameters())).keys() == trained.keys()
