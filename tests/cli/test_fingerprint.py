"""What tells results of one model and setting from those of another."""

from collections.abc import Callable
from dataclasses import fields, replace

import mlx.core as mx
import pytest

from mlxgpt.cli.fingerprint import model_fingerprint, request_key
from mlxgpt.infer.sampling import SamplingParams
from mlxgpt.model import GPT


def test_every_tensor_of_a_model_counts(random_gpt: Callable[..., GPT]) -> None:
    whole = model_fingerprint(random_gpt(1))
    assert model_fingerprint(random_gpt(1)) == whole
    found = {whole}
    names = list(random_gpt(1).weights())
    for name in names:
        changed = random_gpt(1)
        changed.set_weights({name: changed.weights()[name] * 1.001})
        found.add(model_fingerprint(changed))
    assert len(found) == 1 + len(names)
    half = random_gpt(1)
    half.set_weights({n: w.astype(mx.bfloat16) for n, w in half.weights().items()})
    assert model_fingerprint(half) not in found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.5), ("top_k", 1), ("top_p", 0.5), ("min_p", 0.5), ("max_tokens", 1),
        ("repetition_penalty", 2.0), ("presence_penalty", 1.0), ("frequency_penalty", 1.0),
        ("logit_bias", {3: 1.0}), ("stop", ("a",)), ("stop_ids", frozenset({3})), ("seed", 1),
        ("logprobs", 0), ("n", 2),
    ],
)  # fmt: skip
def test_every_setting_counts(name: str, value: object) -> None:
    plain = SamplingParams()
    key = request_key("m", [1, 2], replace(plain, **{name: value}))
    assert key == request_key("m", [1, 2], replace(plain, **{name: value}))
    assert key != request_key("m", [1, 2], plain)


def test_every_setting_is_in_that_test() -> None:
    assert len(fields(SamplingParams)) == 14


def test_the_model_and_the_prompt_count() -> None:
    keys = {
        request_key(model, ids, SamplingParams())
        for model in ("m", "n")
        for ids in ([1], [1, 2], [12])
    }
    assert len(keys) == 6
    stops = frozenset(range(50, 0, -1))
    assert request_key("m", [1], SamplingParams(stop_ids=stops)) == request_key(
        "m", [1], SamplingParams(stop_ids=frozenset(range(1, 51)))
    )
