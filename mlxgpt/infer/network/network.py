"""A GPT as the engine runs it: tokens of many texts in one row -> logits where they are wanted."""

from typing import Protocol
from weakref import WeakValueDictionary

import mlx.core as mx

from mlxgpt.config import require
from mlxgpt.infer.network.fused_network import FusedNetwork
from mlxgpt.infer.network.fused_weights import can_fuse
from mlxgpt.infer.network.weight_watch import WeightWatch
from mlxgpt.infer.paged.paged_attend import PagedAttend
from mlxgpt.infer.paged.step_attention import StepAttention
from mlxgpt.model import GPT


class Network(Protocol):
    """What computes a step."""

    def __call__(self, input_ids: mx.array, attention: StepAttention, wanted: mx.array) -> mx.array:
        """Return logits (M, V) for those of the N tokens `input_ids` (N,) that `wanted` (M,) names
        by their places; keys and values of all of them are stored.

        Ids and places are integers that nobody checks. Nothing is evaluated; evaluate what the
        attention stores too, since the logits need not depend on all of it.
        """
        ...

    def stale(self) -> bool:
        """Whether the model has other weights now than when this was made, which makes a cache of
        keys and values worthless. Costs less than a millisecond; see `WeightWatch`."""
        ...


class GPTNetwork:
    """Any GPT, run as it is: adapters, quantized matrices, any precision, any device."""

    def __init__(self, model: GPT) -> None:
        """Raises `ConfigError` for a model that cannot be batched."""
        check_batchable(model)
        self._model = model
        self._watch = WeightWatch(model)

    def __call__(self, input_ids: mx.array, attention: StepAttention, wanted: mx.array) -> mx.array:
        attend = PagedAttend(attention, self._model.config.context)
        features = self._model.features(input_ids[None], attend)[0]
        if not wanted.shape[0]:  # MLX divides by the number of rows in a quantized product
            return mx.zeros((0, self._model.config.vocab))
        return self._model.head(features[wanted])

    def stale(self) -> bool:
        return self._watch.changed()


_fused: WeakValueDictionary[int, FusedNetwork] = WeakValueDictionary()
"""By the id of the model, which the network keeps alive. Two networks that take over the weights of
one model in turn would each make the other stale."""


def network_for(model: GPT) -> Network:
    """Return the fastest network for this model as it is now, on the default device.

    Where that is a `FusedNetwork`, the model's weights become views of its matrices. Raises
    `ConfigError` for a model that cannot be batched.
    """
    check_batchable(model)
    if not can_fuse(model):
        return GPTNetwork(model)
    network = _fused.get(id(model))
    if network is None or network.stale():
        network = _fused[id(model)] = FusedNetwork(model)
    return network


def check_batchable(model: GPT) -> None:
    """Raise `ConfigError` if keys, once stored, would have to be turned again later."""
    scaling = model.config.rope_scaling
    require(
        scaling is None or scaling.rope_type != "dynamic",
        "a model with rotary type 'dynamic' cannot be batched: it turns each token by the length "
        "of its text at that time; use mlxgpt.infer.generate for it",
    )
