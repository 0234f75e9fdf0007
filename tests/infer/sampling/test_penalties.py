from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.errors import ConfigError
from mlxgpt.infer.sampling import Context, SamplingParams, next_logprobs
from mlxgpt.infer.sampling.penalties import adjusted

VOCAB = 9


def naive(logits: np.ndarray, context: Context) -> np.ndarray:
    """The formulas, one id after the other, in float64."""
    x = logits.astype(np.float64).copy()
    params, prompt, text = context.params, context.prompt_ids, context.generated_ids
    for i in range(len(x)):
        x[i] += params.logit_bias.get(i, 0.0)
        if i in prompt or i in text:
            x[i] = (
                x[i] / params.repetition_penalty if x[i] > 0 else x[i] * params.repetition_penalty
            )
        x[i] -= params.frequency_penalty * list(text).count(i)
        x[i] -= params.presence_penalty * (i in text)
    return x


IDS = st.lists(st.integers(0, VOCAB + 2), max_size=12)  # some lie beyond what can be drawn
CONTEXTS = st.builds(
    Context,
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 1.0]),
        repetition_penalty=st.sampled_from([1.0, 0.5, 1.3]),
        presence_penalty=st.sampled_from([0.0, 0.7, -1.5]),
        frequency_penalty=st.sampled_from([0.0, 0.25, -2.0]),
        logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.floats(-9, 9), max_size=3),
    ),
    IDS,
    IDS,
)


@given(
    st.lists(
        st.tuples(CONTEXTS, st.lists(st.floats(-8, 8, width=32), min_size=VOCAB, max_size=VOCAB)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([mx.float32, mx.bfloat16]),
)
def test_rows_get_what_the_formulas_say(rows: list[Any], dtype: mx.Dtype) -> None:
    contexts = [context for context, _ in rows]
    given_logits = mx.array([logits for _, logits in rows]).astype(dtype)
    values = np.array(given_logits.astype(mx.float32))
    got = np.array(adjusted(given_logits, contexts).astype(mx.float32))
    for i, context in enumerate(contexts):
        np.testing.assert_allclose(got[i], naive(values[i], context), atol=1e-5, rtol=1e-6)
    np.testing.assert_array_equal(np.array(given_logits.astype(mx.float32)), values)


def penalized(logits: list[float], prompt: list[int], text: list[int], **settings: Any) -> Any:
    return adjusted(mx.array([logits]), [Context(SamplingParams(**settings), prompt, text)])[0]


def test_by_hand() -> None:
    logits = [2.0, -2.0, 0.5, 4.0]
    assert penalized(logits, [0, 1], [3], repetition_penalty=2.0).tolist() == [1, -4, 0.5, 2]
    # The prompt does not count for these two.
    got = penalized(logits, [0, 1], [3, 2, 3], presence_penalty=0.5, frequency_penalty=0.25)
    assert got.tolist() == [2, -2, -0.25, 3]
    # The bias comes first: it decides which way the repetition penalty goes.
    got = penalized(logits, [1], [], logit_bias={1: 3.0, 2: -1.0}, repetition_penalty=2.0)
    assert got.tolist() == [2, 0.5, -0.5, 4]
    # Then the repetition penalty, and what is taken off at last is not multiplied.
    got = penalized(logits, [], [3], repetition_penalty=2.0, presence_penalty=1.0)
    assert got.tolist() == [2, -2, 0.5, 1]


def test_temperature_and_filters_come_after_them() -> None:
    params = SamplingParams(temperature=0.5, top_k=1, logit_bias={0: 10.0})
    logprobs = next_logprobs(mx.array([[0.0, 3.0, 1.0]]), [Context(params, [], [])])
    assert logprobs.tolist() == [[0, -np.inf, -np.inf]]
    params = SamplingParams(temperature=0.5, presence_penalty=1.0)
    got = next_logprobs(mx.array([[0.0, 1.0]]), [Context(params, [], [1])])
    np.testing.assert_allclose(np.array(got), np.log([[0.5, 0.5]]), atol=1e-6)


def test_extreme_values_stay_numbers() -> None:
    logits = [-3.0, 0.0, 5.0]
    for settings in (
        {"repetition_penalty": 1e300}, {"repetition_penalty": 1e-300}, {"presence_penalty": 1e300},
        {"frequency_penalty": -1e308}, {"logit_bias": {0: 1e300, 1: -1e300}},
    ):  # fmt: skip
        params = SamplingParams(**settings)
        p = np.exp(np.array(next_logprobs(mx.array([logits]), [Context(params, [0], [1, 2, 2])])))
        assert p.sum() == pytest.approx(1, abs=1e-5), settings


def test_a_bias_of_an_id_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="id 4; the model has ids 0 to 3"):
        penalized([0.0] * 4, [], [], logit_bias={1: 1.0, 4: 1.0})
    with pytest.raises(ConfigError, match="logit_bias"):
        penalized([0.0] * 4, [], [], logit_bias={10**30: 1.0})


def test_without_them_the_logits_are_left_alone() -> None:
    logits = mx.zeros((2, 4), dtype=mx.bfloat16)
    assert adjusted(logits, [Context(SamplingParams(), [1], [2])] * 2) is logits
