"""A text scored by sliding windows equals the same text scored one token at a time."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.checkpoint import load_model
from mlxgpt.errors import ConfigError
from mlxgpt.infer import Score, perplexity, score, window_sizes
from mlxgpt.infer.language_model import SlidingGPT
from mlxgpt.infer.perplexity import Window, sliding_windows
from mlxgpt.model import GPT, RopeScaling

Make = Callable[..., GPT]


def text_of(length: int) -> list[int]:
    return np.random.Generator(np.random.Philox(key=length)).integers(0, 61, length).tolist()


def nll_of(logits: mx.array, target: int) -> float:
    """-log softmax of one row of logits (V,), in float64."""
    x = np.array(logits.astype(mx.float32), dtype=np.float64)
    return float(np.log(np.exp(x - x.max()).sum()) + x.max() - x[target])


def plain_nll(model: GPT, ids: list[int], context: int, stride: int) -> float:
    """One token at a time, each after what the first window that reaches it holds before it."""
    total = 0.0
    for place in range(1, len(ids)):
        begin = 0
        while begin + context <= place:
            begin += stride
        total += nll_of(model(mx.array([ids[begin:place]]))[0, -1], ids[place])
    return total


sizes = st.integers(2, 16).flatmap(lambda c: st.tuples(st.just(c), st.integers(1, c - 1)))


@given(length=st.integers(2, 40), sizes=sizes, batch_size=st.integers(1, 5))
def test_windows_give_what_one_token_at_a_time_gives(
    length: int, sizes: tuple[int, int], batch_size: int, random_gpt: Make
) -> None:
    model, ids, (context, stride) = random_gpt(), text_of(length), sizes
    found = score(model, ids, context=context, stride=stride, batch_size=batch_size)
    assert found.nll == pytest.approx(plain_nll(model, ids, context, stride), rel=1e-5)
    assert (found.num_tokens, found.context, found.stride) == (length - 1, context, stride)


@given(length=st.integers(2, 500), sizes=sizes)
def test_every_token_but_the_first_is_scored_once_with_enough_before_it(
    length: int, sizes: tuple[int, int]
) -> None:
    context, stride = sizes
    windows = list(sliding_windows(length, context, stride))
    scored = [place for w in windows for place in range(w.first, w.end)]
    assert scored == list(range(1, length))
    for number, w in enumerate(windows):
        assert w.begin == number * stride
        assert w.end - w.begin == min(context, length - w.begin)
        assert w.first - w.begin >= (context - stride if number else 1)
    assert all(w.first < w.end for w in windows), "a window that scores nothing is wasted"


def test_windows_by_hand() -> None:
    assert list(sliding_windows(11, 6, 4)) == [Window(0, 1, 6), Window(4, 6, 10), Window(8, 10, 11)]
    assert list(sliding_windows(10, 6, 4)) == [Window(0, 1, 6), Window(4, 6, 10)]
    assert list(sliding_windows(3, 6, 4)) == [Window(0, 1, 3)]


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 5, "sliding_layers": (1,)},
        {"tie_embeddings": False, "n_kv_head": 1},
        # Its angles depend on the length of what is read, so a row that was filled up would differ.
        {
            "rope_scaling": RopeScaling(
                rope_type="dynamic", factor=2, original_max_position_embeddings=8
            )
        },
    ],
    ids=["sliding", "untied", "dynamic"],
)
def test_a_window_is_read_as_if_it_were_alone(fields: dict[str, object], random_gpt: Make) -> None:
    model, ids = random_gpt(**fields), text_of(16 + 7 + 7 + 2)
    alone = 0.0
    for begin, first, end in ((0, 1, 16), (7, 16, 23), (14, 23, 30), (21, 30, 32)):
        logits = model(mx.array([ids[begin:end]]))[0]
        alone += sum(nll_of(logits[i - 1 - begin], ids[i]) for i in range(first, end))
    for batch_size in (1, 2, 3, 9):
        found = score(model, ids, context=16, stride=7, batch_size=batch_size)
        assert found.nll == pytest.approx(alone, rel=1e-5)


def test_the_head_sees_only_what_is_scored_and_in_parts(
    random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, ids = random_gpt(), text_of(100)
    whole = score(model, ids, context=16, stride=5)
    monkeypatch.setattr(perplexity, "_LOGITS", 7 * 61 + 60)
    head, rows, told = model.head, [], []

    def counted(features: mx.array) -> mx.array:
        rows.append(features.shape[0])
        return head(features)

    monkeypatch.setattr(model, "head", counted)
    found = score(model, ids, context=16, stride=5, batch_size=3, progress=told.append)
    assert max(rows) == 7
    assert sum(rows) == 99
    assert told == np.cumsum(rows).tolist()
    assert found.nll == pytest.approx(whole.nll, rel=1e-6)


@pytest.mark.parametrize("logits", [61, 2**24], ids=["token by token", "together"])
def test_sums_are_taken_in_float64(
    logits: int, random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perplexity, "_LOGITS", logits)
    model = random_gpt(tie_embeddings=False)
    model.set_weights({"lm_head.weight": mx.zeros((61, 32))})
    found = score(model, text_of(3000), context=16, stride=15)
    assert found.perplexity == pytest.approx(61, rel=1e-6)
    each = float(np.float32(found.mean_nll))
    assert found.nll == pytest.approx(each * 2999, rel=1e-13), "a float32 was added up"


def test_probabilities_of_half_precision_are_taken_in_float32(random_gpt: Make) -> None:
    model, ids = random_gpt(), text_of(16)
    model.set_weights({k: w.astype(mx.bfloat16) for k, w in model.weights().items()})
    logits = model(mx.array([ids]))[0]
    assert logits.dtype == mx.bfloat16
    alone = sum(nll_of(logits[i - 1], ids[i]) for i in range(1, 16))
    assert score(model, ids).nll == pytest.approx(alone, rel=1e-5)


def test_ids_beyond_the_tokenizer_have_their_share(random_gpt: Make) -> None:
    model, ids = random_gpt(tie_embeddings=False), [i % 50 for i in text_of(40)]
    before = score(model, ids).nll
    head = model.weights()["lm_head.weight"]
    model.set_weights({"lm_head.weight": mx.where(mx.arange(61)[:, None] < 50, head, 5 * head)})
    assert score(model, ids).nll > before + 1


def test_a_network_of_another_library_is_scored_by_its_logits(
    random_gpt: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, ids = SlidingGPT(random_gpt()), text_of(50)
    monkeypatch.setattr(other, "longest", 16)
    settings: list[dict[str, Any]] = [{}, {"context": 9, "stride": 2, "batch_size": 4}]
    for sizes in settings:
        expected = score(random_gpt(), ids, **sizes)
        found = score(other, ids, **sizes)
        assert found.nll == pytest.approx(expected.nll, rel=1e-6)
        assert (found.context, found.stride) == (expected.context, expected.stride)
    with pytest.raises(ConfigError, match="at most 16"):
        score(other, ids, context=17)
    with pytest.raises(ConfigError, match="id 61"):
        score(other, [1, 61])


def test_arrays_and_lists_are_the_same_text(random_gpt: Make) -> None:
    model, ids = random_gpt(), text_of(30)
    for kind in (np.int32, np.int64, np.uint16):
        assert score(model, np.array(ids, dtype=kind)) == score(model, ids)


def test_sizes_that_were_not_given_follow_from_the_model(random_gpt: Make) -> None:
    for most, sizes in ((2, (2, 1)), (16, (16, 8)), (1023, (1023, 511)), (8192, (1024, 512))):
        assert window_sizes(most, None, None) == sizes
    assert window_sizes(None, None, None) == (1024, 512)
    assert window_sizes(8192, 4096, None) == (4096, 2048)
    assert window_sizes(8192, None, 1000) == (1024, 1000)
    found = score(random_gpt(), text_of(30))
    assert (found.context, found.stride) == (16, 8)
    doubled = RopeScaling(rope_type="dynamic", factor=2, original_max_position_embeddings=16)
    found = score(random_gpt(rope_scaling=doubled), text_of(30))
    assert (found.context, found.stride) == (32, 16)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"context": 17}, "'context' must be at most 16"),
        ({"context": 1}, "'context' must be at least 2"),
        ({"context": 0}, "'context' must be at least 2"),
        ({"context": -5}, "'context' must be at least 2"),
        ({"stride": 0}, "'stride' must be at least 1"),
        ({"stride": -1}, "'stride' must be at least 1"),
        ({"stride": 16}, r"'stride' must be below 'context' \(16\).*got 16"),
        ({"context": 4, "stride": 9}, r"'stride' must be below 'context' \(4\).*got 9"),
        ({"batch_size": 0}, "'batch_size' must be at least 1"),
    ],
)
def test_sizes_that_are_not_possible_are_refused(
    settings: dict[str, Any], part: str, random_gpt: Make
) -> None:
    with pytest.raises(ConfigError, match=part):
        score(random_gpt(), text_of(30), **settings)


def test_ids_that_are_no_text_are_refused(random_gpt: Make) -> None:
    model = random_gpt()
    for ids in ([], [5]):
        with pytest.raises(ConfigError, match=f"{len(ids)} tokens"):
            score(model, ids)
    with pytest.raises(ConfigError, match="token 2 is id 61; the model has ids 0 to 60"):
        score(model, [1, 2, 61, 99])
    with pytest.raises(ConfigError, match="token 0 is id -1"):
        score(model, [-1, 2])
    with pytest.raises(ConfigError, match="one row"):
        score(model, np.ones((2, 5), dtype=np.int32))


def test_figures_follow_from_the_sum() -> None:
    found = Score(nll=math.log(2) * 24, num_tokens=6, context=8, stride=4)
    assert found.mean_nll == pytest.approx(4 * math.log(2))
    assert found.perplexity == pytest.approx(16)
    assert found.bits_per_byte(12) == pytest.approx(2)
    assert Score(nll=1e6, num_tokens=1, context=8, stride=4).perplexity == math.inf


def test_a_published_checkpoint_has_its_known_loss(shared_data: Path) -> None:
    folder = shared_data / "checkpoints" / "stories260K-hf"
    if not folder.is_dir():
        pytest.skip("needs stories260K-hf")
    golden = json.loads((folder / "golden.json").read_text())
    known = golden["nll_first31"]
    found = score(load_model(folder), golden["greedy_ids"][: len(known) + 1])
    assert found.nll == pytest.approx(sum(known), rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_transformers_gives_the_same(tmp_path: Path) -> None:
    """By its own loss, with the labels of what a window does not score set to -100."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=48, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=61, max_position_embeddings=64, initializer_range=0.3,
    )  # fmt: skip
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    ids, context, stride = torch.tensor([text_of(150)]), 32, 12
    total = reached = 0
    for begin in range(0, 150, stride):
        window = ids[:, begin : begin + context]
        labels = window.clone()
        labels[:, : max(0, reached - begin)] = -100
        count = int((labels[:, 1:] != -100).sum())
        with torch.no_grad():
            total += theirs(window, labels=labels).loss.item() * count
        reached = begin + window.shape[1]
        if reached == 150:
            break
    found = score(load_model(tmp_path), text_of(150), context=context, stride=stride)
    assert found.nll == pytest.approx(total, rel=1e-5)
