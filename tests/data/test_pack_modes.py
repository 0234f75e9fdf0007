"""The pack modes: what is drawn how often, what shares a row; and that the loss knows neither."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlxgpt import seeding
from mlxgpt.data import Batch
from mlxgpt.data.sft.batching import micro_batches, to_batch
from mlxgpt.data.sft.config import SFTDataConfig
from mlxgpt.data.sft.drawing import Drawing
from mlxgpt.data.sft.drawings import drawing_for
from mlxgpt.data.sft.example import Example
from mlxgpt.data.sft.packing import best_fit_decreasing, concatenate, cut_into_pieces
from mlxgpt.model import GPT, GPTConfig, SegmentAttend, init_weights
from mlxgpt.text import Tokenizer
from mlxgpt.train.objective import Objective

MODES = ("none", "sequence", "sample", "bucket")
lengths_of = st.lists(st.integers(2, 40), min_size=1, max_size=40)


def draw(
    mode: str, lengths: list[int], rows: int = 4, seed: int = 0, capacity: int = 64
) -> Drawing:
    config = SFTDataConfig(train="x", pack_mode=mode)  # type: ignore[arg-type]
    return drawing_for(config, lengths, rows, capacity, seed)


def epoch_rows(drawing: Drawing, epoch: int) -> list[tuple[int, ...]]:
    steps = drawing.steps_in(1)
    return [
        tuple(row) for s in range(epoch * steps, (epoch + 1) * steps) for row in drawing.rows(s)
    ]


@settings(max_examples=80, deadline=None)
@given(
    lengths=lengths_of, rows=st.integers(1, 6), seed=st.integers(0, 9), mode=st.sampled_from(MODES)
)
def test_draws_are_a_function_of_seed_and_step(
    lengths: list[int], rows: int, seed: int, mode: str
) -> None:
    one, other = (draw(mode, lengths, rows, seed) for _ in range(2))
    there = [list(map(tuple, one.rows(step))) for step in range(12)]
    back = [list(map(tuple, other.rows(step))) for step in reversed(range(12))][::-1]
    assert there == back
    assert all(1 <= len(step) <= rows for step in there)
    assert one.epoch(one.steps_in(3)) >= 3 - 1e-9
    assert one.epoch(one.steps_in(3) - 1) < 3
    assert one.shares.sum() == pytest.approx(1)


@settings(max_examples=80, deadline=None)
@given(lengths=lengths_of, rows=st.integers(1, 6), seed=st.integers(0, 9))
@pytest.mark.parametrize("mode", ["none", "sequence"])
def test_every_example_once_a_pass(lengths: list[int], rows: int, seed: int, mode: str) -> None:
    drawing = draw(mode, lengths, rows, seed)
    for epoch in range(3):
        drawn = epoch_rows(drawing, epoch)
        assert sorted(i for row in drawn for i in row) == list(range(len(lengths)))
        assert all(sum(lengths[i] - 1 for i in row) <= 64 for row in drawn)


def test_the_last_step_of_a_pass_is_short() -> None:
    drawing = draw("none", [5] * 7)
    assert [len(drawing.rows(step)) for step in range(6)] == [4, 3] * 3
    assert [len(draw("none", [5] * 2).rows(step)) for step in range(3)] == [2] * 3
    assert draw("sequence", [101] * 8, rows=1, capacity=400).steps_in(3) == 6


def test_passes_differ() -> None:
    for mode in MODES:
        drawing = draw(mode, [*range(2, 40)] * 3, capacity=60)
        steps = drawing.steps_in(1)
        first, second = (
            {frozenset(i for row in drawing.rows(e * steps + s) for i in row) for s in range(steps)}
            for e in (0, 1)
        )
        assert len(first & second) < steps / 4, mode


@settings(max_examples=150, deadline=None)
@given(places=st.lists(st.integers(1, 30), min_size=1, max_size=60), capacity=st.integers(30, 70))
def test_packing_is_best_fit_decreasing(places: list[int], capacity: int) -> None:
    rooms: list[int] = []
    wanted = {}
    for item in sorted(range(len(places)), key=lambda i: (-places[i], i)):
        fitting = [p for p, room in enumerate(rooms) if room >= places[item]]
        if not fitting:
            rooms.append(capacity)
            fitting = [len(rooms) - 1]
        pack = min(fitting, key=lambda p: (rooms[p], p))
        rooms[pack] -= places[item]
        wanted[item] = pack
    found = best_fit_decreasing(np.array(places), capacity)
    assert len(set(found.tolist())) == len(rooms)
    used = np.bincount(found, weights=places)
    assert used.max() <= capacity
    assert sorted(used.tolist()) == sorted(capacity - room for room in rooms)


# The known test. Bins and corpora are those of the figures that are known for it.

BINS = ((10, 80), (80, 160), (160, 240), (240, 401))


def corpus(seed: int) -> list[int]:
    u = seeding.generator(seed, "known-corpus").random((1000, 2))
    return [10 + int(50 * v) if p < 0.8 else 60 + int(340 * v) for p, v in u.tolist()]


def unevenness(lengths: list[int], drawn: list[int]) -> float:
    """Return the CoV over the bins of length x draws of an example, mean over the lengths."""
    counts, examples = Counter(lengths[i] for i in drawn), Counter(lengths)
    means = [
        np.mean([n * counts[n] / examples[n] for n in examples if low <= n < high])
        for low, high in BINS
    ]
    return float(np.std(means) / np.mean(means))


def drawn_by(mode: str, lengths: list[int], seed: int) -> list[int]:
    drawing = draw(mode, lengths, 8, seed, capacity=512)
    return [i for step in range(1000) for row in drawing.rows(step) for i in row]


@pytest.mark.slow
def test_sampling_by_length_is_flat() -> None:
    found, uniform, dice = [], [], []
    for seed in range(100):
        lengths = corpus(seed)
        found.append(unevenness(lengths, drawn_by("sample", lengths, seed)))
        rng = seeding.generator(seed, "known-dice")
        uniform.append(unevenness(lengths, rng.integers(0, 1000, 8000).tolist()))
        weights = 1 / np.array(lengths)
        cast = rng.choice(1000, 8000, p=weights / weights.sum())
        dice.append(unevenness(lengths, cast.tolist()))
    assert np.mean(found) <= 0.025
    assert all(a < b for a, b in zip(found, uniform, strict=True))
    # What the figures would be otherwise: the bound above tells them apart.
    assert 0.55 < np.mean(uniform) < 0.66
    assert np.mean(dice) > 0.07


@settings(max_examples=40, deadline=None)
@given(lengths=lengths_of, seed=st.integers(0, 5))
def test_counts_stay_near_their_expectation(lengths: list[int], seed: int) -> None:
    drawing = draw("sample", lengths, 5, seed)
    share, counts = drawing.shares, np.zeros(len(lengths))
    inverse = 1 / np.array(lengths)
    np.testing.assert_allclose(share, inverse / inverse.sum())
    for step in range(400):
        for row in drawing.rows(step):
            counts[list(row)] += 1
        assert np.abs(counts - share * 5 * (step + 1)).max() < 6


def test_shares_of_many_draws() -> None:
    drawing = draw("sample", [2, 4, 8], 7)
    counts = Counter(i for step in range(10_000) for row in drawing.rows(step) for i in row)
    for index, wanted in enumerate((4 / 7, 2 / 7, 1 / 7)):
        assert counts[index] / 70_000 == pytest.approx(wanted, rel=0.01)


def test_the_same_examples_do_not_always_meet() -> None:
    drawing = draw("sample", [10] * 64, 4)
    meetings = Counter(
        pair
        for step in range(800)
        for rows in [sorted(i for row in drawing.rows(step) for i in row)]
        for pair in {(a, b) for a in rows for b in rows if a < b}
    )
    # 4,800 pairs met among 2,016 possible ones: about 2.4 times each.
    assert len(meetings) > 1500
    assert max(meetings.values()) < 15


def test_buckets_are_taken_in_turn_and_evenly_inside() -> None:
    lengths = [10] * 30 + [11] * 10 + [55] * 8 + [100] * 2
    drawing = draw("bucket", lengths, 4)  # bins of width 22.5: one is empty
    counts: Counter[int] = Counter()
    bins = []
    for step in range(300):
        indices = [i for row in drawing.rows(step) for i in row]
        groups = {0 if i < 40 else 1 if i < 48 else 2 for i in indices}
        assert len(groups) == 1
        bins.append(groups.pop())
        counts.update(indices)
    assert all(sorted(bins[i : i + 3]) == [0, 1, 2] for i in range(0, 300, 3))
    for low, high in ((0, 40), (40, 48), (48, 50)):
        inside = [counts[i] for i in range(low, high)]
        assert max(inside) - min(inside) <= 1


# Rows of a batch, and the loss.


def example(ids: list[int], first: int = 1) -> Example:
    return Example(np.array(ids, dtype=np.int32), np.arange(len(ids)) >= first)


def network(**changes: Any) -> GPT:
    shape = {"n_layer": 2, "n_embd": 16, "n_head": 4, "n_kv_head": 2, "max_seq_len": 32}
    model = GPT(GPTConfig(**{**shape, **changes}, vocab_size=50))
    init_weights(model, 1)
    weights = model.weights()
    keys = mx.random.split(mx.random.key(2), len(weights))
    pairs = zip(weights.items(), keys, strict=True)
    model.set_weights({n: w + 0.1 * mx.random.normal(w.shape, key=k) for (n, w), k in pairs})
    return model


def loss_and_gradients(model: GPT, batches: list[Batch]) -> tuple[float, dict[str, mx.array]]:
    objective, total, sums = Objective(), 0.0, {}

    def nll(weights: dict[str, mx.array], inputs: dict[str, mx.array]) -> mx.array:
        model.set_weights(weights)
        return objective.nll(model, inputs, mx.random.key(0))

    weights = model.weights()
    for batch in batches:
        loss, gradients = mx.value_and_grad(nll)(dict(weights), objective.inputs(batch))
        model.set_weights(weights)
        total += float(loss.item())
        sums = {n: gradients[n] + sums.get(n, 0) for n in weights}
    return total, sums


EXAMPLES = [example([1, 2, 3]), example([4, 5, 6, 7, 8], 3), example([9, 3, 3, 9, 0, 0, 1], 2)]


@pytest.mark.parametrize(
    "shape", [{}, {"n_kv_head": 4}, {"sliding_window": 3}, {"n_kv_head": 1}], ids=str
)
def test_a_pack_is_its_examples_one_by_one(shape: dict[str, Any]) -> None:
    model = network(**shape)
    alone, gradients = loss_and_gradients(model, [to_batch([[e]]) for e in EXAMPLES])
    for rows in (
        [EXAMPLES],
        [EXAMPLES[::-1]],
        [[EXAMPLES[0]], EXAMPLES[1:]],
        [[e] for e in EXAMPLES],
    ):
        for cut in ({}, {"rows_at_once": 1}, {"tokens_at_once": 20}):
            packed, others = loss_and_gradients(model, micro_batches(rows, **cut))
            assert packed == pytest.approx(alone, rel=1e-5)
            for name, gradient in gradients.items():
                np.testing.assert_allclose(
                    np.array(others[name]), np.array(gradient), rtol=1e-3, atol=2e-5, err_msg=name
                )


def test_a_pack_counts_its_own_terms_and_positions() -> None:
    batch = to_batch([EXAMPLES])
    assert int(batch.loss_weights.sum()) == sum(e.num_supervised for e in EXAMPLES)
    assert batch.filled == 2 + 4 + 6
    assert batch.segment_ids is not None
    positions = SegmentAttend(mx.array(batch.segment_ids)).positions
    assert positions[0, :12].tolist() == [0, 1, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5]
    assert batch.targets[0, :12].tolist() == [2, 3, 5, 6, 7, 8, 3, 3, 9, 0, 0, 1]


def test_another_example_and_padding_change_nothing() -> None:
    model = network()

    def logits(rows: list[list[Example]], fill: int = 0) -> mx.array:
        batch = to_batch(rows)
        assert batch.segment_ids is not None
        ids = batch.input_ids.copy()
        ids[0, batch.filled :] = fill
        return model(mx.array(ids), SegmentAttend(mx.array(batch.segment_ids)))

    first, rest = EXAMPLES[0], EXAMPLES[1:]
    plain = logits([[first, *rest]])
    other = logits([[example([30, 31, 3]), *rest]])
    assert mx.array_equal(plain[0, 2:12], other[0, 2:12])
    assert not mx.array_equal(plain[0, :2], other[0, :2])
    assert mx.array_equal(plain[0, :12], logits([[first, *rest]], fill=7)[0, :12])


def test_padding_is_known_by_its_place() -> None:
    """A padding id may be the end of text, or stand in a text."""
    end = 0
    rows = [[example([5, 6, end], 1)], [example([5, 6, 7, 8, 9, end], 1)]]
    batch = to_batch(rows)
    for r, row in enumerate(rows):
        learned = batch.targets[r][batch.loss_weights[r] > 0].tolist()
        assert learned == row[0].ids[1:].tolist()
        assert learned.count(end) == 1


GOLDEN = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.skipif(not GOLDEN.exists(), reason="the files beside the project are not there")
def test_concatenation_gives_the_known_rows() -> None:
    folder = GOLDEN / "sft" / "cs336-sft-packing-golden"
    known = json.loads((folder / "tokenized_sft_sample.json").read_text(encoding="utf-8"))
    llama = Tokenizer.load(GOLDEN / "tokenizers" / "llama3")
    begin, end = (llama.special_tokens[n] for n in ("<|begin_of_text|>", "<|end_of_text|>"))
    first = llama.decode(known[0]["input_ids"][1:])
    form = first[: first.index("### Instruction:")]
    streams = []
    for line in (folder / "sft_sample.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        text = f"{form}### Instruction:\n{row['prompt']}\n\n### Response:\n{row['response']}"
        streams.append(np.array([begin, *llama.encode(text), end], dtype=np.int32))
    ids, labels = concatenate(streams, 32)
    assert ids.tolist() == [row["input_ids"] for row in known]
    assert labels.tolist() == [row["labels"] for row in known]


def test_pieces_hold_every_target_once() -> None:
    pieces = cut_into_pieces(EXAMPLES, 4, 3)
    terms = sum(piece.num_supervised for piece in pieces.examples)
    # The first id of all that is joined has none before it, and is not supervised anyway.
    assert terms == sum(e.num_supervised for e in EXAMPLES)
    assert all(piece.length <= 5 for piece in pieces.examples)
