"""Attention over a pool by views, against copies and against plain attention over each text."""

from collections.abc import Callable, Iterator

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paged_texts import Heads, Texts, texts

from mlxgpt.infer.paged import reading, softmax_weights
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.by_device import step_attention
from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.paged_attend import PagedAttend
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.run_views import RunViews
from mlxgpt.infer.paged.step_attention import StepRow, new_slots
from mlxgpt.machine.compiler import Compiler
from mlxgpt.model import GPT, CausalAttend


@pytest.fixture(autouse=True, scope="module")
def _on_a_cpu() -> Iterator[None]:
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(before)


def check(found: Texts, window: int | None = None) -> None:
    """Both ways give what each text gives alone."""
    expected = found.expected(window)
    for make in (GatheredAttention, RunViews):
        found.fill()
        got = found.run(make, window)
        assert got.shape == expected.shape
        assert mx.allclose(got, expected, rtol=1e-5, atol=1e-5), make


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([1, 1, 1, 2, 5, 9, 20]), min_size=1, max_size=9),
    st.sampled_from([1, 3, 4, 16]),
    st.sampled_from(["shuffled", "runs", "whole", "apart"]),
    st.sampled_from([1, 3]),
    st.integers(0, 3),
    st.none() | st.integers(1, 40),
    st.sampled_from([Heads(), Heads(1, 4, 4), Heads(3, 1, 5), Heads(1, 1, 16)]),
)
def test_any_tables(
    seed: int,
    counts: list[int],
    block_size: int,
    order: str,
    segments: int,
    shared: int,
    window: int | None,
    heads: Heads,
) -> None:
    layout = {"block_size": block_size, "order": order, "segments": segments, "shared": shared}
    check(texts(seed, counts, heads=heads, **layout), window)


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("counts", [[1], [5], [1, 1, 1, 1], [2, 2, 2], [20]])
@pytest.mark.parametrize("window", [None, 7])
def test_few_scores_and_many(
    few: int, counts: list[int], window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_FEW_SCORES", few)
    for order in ("whole", "shuffled"):
        check(texts(11, counts, block_size=4, order=order), window)


@pytest.mark.parametrize("order", ["shuffled", "runs", "whole", "apart"])
@pytest.mark.parametrize("window", [None, 100, 300])
def test_long_texts_and_prompts(order: str, window: int | None) -> None:
    counts, lengths = [1, 300, 1, 5, 140, 1, 1, 130], [700, 300, 650, 512, 900, 30, 513, 130]
    for block_size in (3, 16):
        found = texts(7, counts, lengths=lengths, block_size=block_size, order=order, segments=2)
        check(found, window)


@pytest.mark.parametrize("order", ["whole", "runs"])
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("window", [None, 200])
def test_many_texts_that_begin_alike(order: str, count: int, window: int | None) -> None:
    lengths = [260 + 7 * i for i in range(12)]
    found = texts(3, [count] * 12, lengths=lengths, block_size=16, order=order, shared=16)
    check(found, window)


@pytest.mark.parametrize("window", [9, 17])
def test_texts_whose_first_blocks_were_given_back(window: int) -> None:
    for counts in ([1, 1, 1, 1], [3, 1, 3, 20]):
        found = texts(5, counts, lengths=[90, 80, 95, 85], block_size=4, order="runs", dropped=12)
        assert [r.table.dropped for r in found.rows] == [0, 48, 0, 48]
        check(found, window)


@pytest.mark.parametrize("order", ["shuffled", "runs", "whole", "apart"])
@pytest.mark.parametrize("window", [None, 20])
def test_what_lies_in_slots_of_nobody_does_not_matter(order: str, window: int | None) -> None:
    for counts in ([1] * 6, [1, 3, 1, 3, 40, 1]):
        found = texts(11, counts, lengths=150, block_size=4, order=order, shared=3)
        clean = found.run(RunViews, window)
        for keys in (float("nan"), float("inf"), -1e4, 1e4, 1e30):
            found.fill(keys, 1e4)
            assert mx.array_equal(found.run(RunViews, window), clean), keys


@pytest.fixture(params=[True, False], ids=["compiled", "eager"])
def compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `mx.compile` where it works, and without."""
    functions = (softmax_weights.weights_function, softmax_weights.finite_function)
    caches = (*functions, softmax_weights._compiling)
    with pytest.MonkeyPatch.context() as patch:
        if not request.param:
            patch.setattr(softmax_weights, "compile_available", lambda: Compiler(False, "none"))
        for each in caches:
            each.cache_clear()
        yield
    for each in caches:
        each.cache_clear()


@pytest.mark.usefixtures("compiler")
def test_no_compiler_gives_the_same() -> None:
    check(texts(19, [1, 1, 4, 30], lengths=100), 40)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("order", ["shuffled", "whole"])
def test_a_text_that_is_not_finite_spoils_only_itself(order: str) -> None:
    found = texts(13, [2, 1, 1, 2, 1], lengths=50, block_size=4, order=order)
    clean = found.run(RunViews)
    for bad in (float("nan"), float("inf")):
        found.fill()
        q, (k, v) = found.queries(), found.new()
        q[2:3], k[2:3], v[2:3] = bad, bad, bad
        got = RunViews(found.pool, found.rows)(0, q, k, v, None)
        mx.eval(got)
        assert not np.isfinite(np.array(got[2])).any()
        assert mx.array_equal(got[:2], clean[:2])
        assert mx.array_equal(got[3:], clean[3:])
        # Once more, beside what the other has left behind.
        rows = [row for i, row in enumerate(found.rows) if i != 1]
        keep = mx.array([0, 1, 3, 4, 5, 6])
        again = RunViews(found.pool, rows)(0, q[keep], k[keep], v[keep], None)
        assert mx.allclose(again, clean[keep], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [GatheredAttention, RunViews])
@pytest.mark.parametrize("block_size", [3, 16])
def test_a_step_changes_only_the_slots_of_its_tokens(
    make: type[RunViews | GatheredAttention], block_size: int
) -> None:
    found = texts(17, [1, 5, 30, 1], block_size=block_size, segments=2, n_layer=2)
    before = [[np.array(a) for a in layers] for layers in found.pool.arrays]
    k, v = found.new()
    found.run(make)
    after = [np.concatenate([np.array(a[i]) for a in found.pool.arrays], 1) for i in (0, 1)]
    expected = [np.concatenate([layers[i] for layers in before], 1) for i in (0, 1)]
    slots = new_slots(found.rows, block_size)
    expected[0][:, slots] = np.concatenate([np.array(k), np.array(v)], 1).swapaxes(0, 1)
    assert (after[0] == expected[0]).all()
    assert (after[1] == expected[1]).all()


def test_a_window_is_exact() -> None:
    for length in range(28, 33):
        for counts in ([1, 1], [3, 3], [20, 1]):
            check(texts(23, counts, lengths=[length, 25], order="whole"), 30)


def test_weights_are_exp_and_at_last_nothing() -> None:
    x = mx.linspace(-40, 0, 4001)
    weights = softmax_weights.weights_function(0.5)
    got, exact = np.array(weights(2 * x, mx.array(0.0))), np.exp(np.array(x, dtype=np.float64))
    assert np.abs(got - exact).max() < 2e-6
    assert (np.abs(got - exact) / exact)[np.array(x) > -8].max() < 5e-6
    far = mx.array([-300.0, -1e4, -1e30, -3e38, float("nan"), -float("inf")])
    assert weights(far, mx.array(0.0)).tolist() == [0] * 6


@pytest.mark.parametrize("window", [None, 16])
def test_a_network_over_a_pool_is_the_network_over_each_text(
    random_gpt: Callable[..., GPT], window: int | None
) -> None:
    model = random_gpt(n_layer=3)
    pool = Pool.for_model(model, 4)
    pool.grow([5, 20])
    ids = [np.random.Generator(np.random.Philox(key=i)).integers(0, 61, 30) for i in range(3)]
    tables = [BlockTable([], 0) for _ in ids]
    free = np.random.Generator(np.random.Philox(key=9)).permutation(25).tolist()
    wanted = [model(mx.array(each)[None], CausalAttend(window))[0] for each in ids]
    for counts in ([7, 0, 20], [1, 9, 1], [3, 1, 2], [1, 1, 1]):
        rows, tokens, expected = [], [], []
        for table, count, text, logits in zip(tables, counts, ids, wanted, strict=True):
            if count:
                tokens += text[table.length : table.length + count].tolist()
                expected.append(logits[table.length : table.length + count])
                table.length += count
                while len(table.blocks) * 4 < table.length:
                    table.blocks.append(free.pop())
                rows.append(StepRow(table, count))
        attention = step_attention(pool, 4, rows)
        got = model(mx.array(tokens)[None], PagedAttend(attention, window))[0]
        assert mx.allclose(got, mx.concatenate(expected), rtol=1e-4, atol=1e-4)


def test_other_precisions_are_gathered() -> None:
    table = BlockTable([0], 1)
    for dtype, kind in ((mx.float32, RunViews), (mx.bfloat16, GatheredAttention)):
        pool = Pool(1, 1, 4, dtype, 4)
        pool.grow([1])
        attention = step_attention(pool, 4, [StepRow(table, 1)])
        assert type(attention) is kind
        one = mx.ones((1, 1, 4), dtype=dtype)
        assert attention(0, one, one, one, None).dtype == dtype
        assert attention.positions.tolist() == [0]
