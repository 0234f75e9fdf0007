import copy
import math
import pickle
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from mlxgpt.errors import ConfigError
from mlxgpt.infer.sampling import SamplingParams

NAN, INF = math.nan, math.inf

WRONG: list[dict[str, Any]] = [
    *({"temperature": v} for v in (-0.1, NAN, INF, None, "1", True, 10**400)),
    *({"top_k": v} for v in (0, -1, 2.0, "3", True, NAN)),
    *({"top_p": v} for v in (0.0, 1.01, NAN, -1.0, INF, "0.5", False)),
    *({"min_p": v} for v in (-0.1, 1.1, NAN, "x")),
    *({"repetition_penalty": v} for v in (0, -1.2, NAN, INF, None, "1")),
    *({"presence_penalty": v} for v in (NAN, INF, -INF, None, "1")),
    *({"frequency_penalty": v} for v in (NAN, INF, None, [1])),
    *(
        {"logit_bias": v}
        for v in (None, [1], {-1: 1.0}, {"1": 1.0}, {1.0: 1.0}, {True: 1.0},
                  {1: NAN}, {1: -INF}, {1: None}, {1: "2"})
    ),
    *({"max_tokens": v} for v in (-1, 2.5, None, NAN, "7")),
    *({"stop": v} for v in ("", ["a", ""], None, 7, [1], [b"a"], {"a": 1})),
    *({"stop_ids": v} for v in ([-1], ["1"], "12", None, [1.0], [True], 2.5)),
    *({"seed": v} for v in (1.5, None, "3", True, NAN)),
    *({"logprobs": v} for v in (-1, 1.5, "2", True)),
    *({"n": v} for v in (0, -1, 1.5, None, "2")),
]  # fmt: skip


@pytest.mark.parametrize("settings", WRONG, ids=str)
def test_values_without_meaning_are_refused_by_name(settings: dict[str, Any]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"'{name}'") as error:
        SamplingParams(**settings)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_values_at_the_edges_are_taken() -> None:
    params = SamplingParams(
        temperature=0, top_k=1, top_p=1, min_p=0, repetition_penalty=0.1, presence_penalty=-2,
        frequency_penalty=-2, max_tokens=0, seed=-(10**30), logprobs=0, n=1,
    )  # fmt: skip
    assert SamplingParams(top_p=1e-300, min_p=1).min_p == 1
    assert (params.temperature, params.logprobs, params.seed) == (0, 0, -(10**30))
    made = SamplingParams(
        temperature=np.float32(0.5), top_k=np.int64(3), stop_ids=np.array([4]), seed=np.int32(2)
    )
    assert made == SamplingParams(temperature=0.5, top_k=3, stop_ids=frozenset([4]), seed=2)
    assert type(made.top_k) is type(made.seed) is int


def test_what_is_given_as_a_list_is_kept_as_something_that_cannot_change() -> None:
    bias = {7: 1, 3: -2.5}
    params = SamplingParams(logit_bias=bias, stop=["a", "bc"], stop_ids=[1, 2])
    bias[3] = 100
    assert dict(params.logit_bias) == {3: -2.5, 7: 1.0}
    assert list(params.logit_bias) == [3, 7]
    assert params.stop == ("a", "bc")
    assert params.stop_ids == frozenset([1, 2])
    assert SamplingParams(stop="abc").stop == ("abc",)
    with pytest.raises(TypeError):
        params.logit_bias[3] = 1.0
    other = SamplingParams(logit_bias={3: -2.5, 7: 1.0}, stop=("a", "bc"), stop_ids={2, 1})
    assert params == other
    assert hash(params) == hash(other)
    assert params.logit_bias == {7: 1.0, 3: -2.5}
    assert params != SamplingParams(logit_bias={3: -2.5})
    for same in (copy.deepcopy(params), pickle.loads(pickle.dumps(params)), replace(params),
                 SamplingParams(**asdict(params))):  # fmt: skip
        assert same == params


def test_each_of_several_texts_has_a_seed_of_its_own() -> None:
    params = SamplingParams(n=5, seed=11, temperature=0.3)
    choices = [params.choice(i) for i in range(5)]
    assert choices[0] == replace(params, n=1)
    assert all(c == replace(params, n=1, seed=c.seed) for c in choices)
    others = [SamplingParams(n=5, seed=12).choice(i) for i in range(5)]
    seeds = [c.seed for c in choices + others]
    assert len(set(seeds)) == 10
    assert all(0 <= seed < 2**48 for seed in seeds)
    assert replace(params, n=9).choice(3).seed == choices[3].seed
    assert SamplingParams(seed=3).choice(0) == SamplingParams(seed=3)
    for index in (-1, 5):
        with pytest.raises(ConfigError, match="text"):
            params.choice(index)
