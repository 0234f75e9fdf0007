"""A loaded model, a prompt, settings -> short texts that differ if what is written could.

With them a run that goes on knows whether the results that are there would be its own.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from mlxgpt.checkpoint.borrowed import BorrowedModel
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT

_NUMBERS = 16
"""Numbers of each tensor that are looked at: another training has moved them."""


def model_fingerprint(network: GPT | BorrowedModel) -> str:
    """Return 32 hexadecimal digits that tell a model, its adapter included, from others.

    They depend on the names and shapes of all tensors and on some numbers of each, wherever the
    files are.
    """
    module = network if isinstance(network, GPT) else network.network
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tree_flatten(module.parameters())):
        assert isinstance(tensor, mx.array)
        places = np.linspace(0, tensor.size - 1, min(_NUMBERS, tensor.size)).astype(np.int64)
        sample = tensor.reshape(-1)[mx.array(places)].astype(mx.float32)
        digest.update(f"{name} {tensor.shape} ".encode() + np.array(sample).tobytes())
    return digest.hexdigest()


def request_key(model: str, prompt_ids: Sequence[int], params: SamplingParams) -> str:
    """Return 16 hexadecimal digits over all that the text written for a request depends on.

    `model` is whatever stands for the model. Settings left as they are by default do not count, so
    that a later version may have more of them.
    """
    default = SamplingParams()
    changed = {
        field.name: _plain(getattr(params, field.name))
        for field in fields(params)
        if getattr(params, field.name) != getattr(default, field.name)
    }
    whole = json.dumps([model, list(map(int, prompt_ids)), changed], sort_keys=True)
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted([key, each] for key, each in value.items())
    if isinstance(value, Collection) and not isinstance(value, str):
        return sorted(value) if isinstance(value, set | frozenset) else list(value)
    return value
