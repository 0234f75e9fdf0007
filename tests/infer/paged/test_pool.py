"""The pool: what is written where, in place, and what growing and copying leave as it was."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxgpt.infer.paged.blocks import BlockTable, Copy
from mlxgpt.infer.paged.places import Places
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.run_views import RunViews
from mlxgpt.infer.paged.step_attention import StepRow


def numbers(n: int, pool: Pool, seed: int = 0) -> tuple[mx.array, mx.array]:
    generator = np.random.Generator(np.random.Philox(key=seed))
    shape = (2, n, pool.kv_heads, pool.head_dim)
    k, v = generator.normal(size=shape).astype(np.float32)
    return mx.array(k), mx.array(v)


def filled(segments: list[int], *, n_layer: int = 2, block_size: int = 4) -> Pool:
    pool = Pool(n_layer, 2, 3, mx.float32, block_size)
    pool.grow(segments)
    every = list(range(sum(segments) * block_size))
    for layer in range(n_layer):
        pool.write(layer, pool.places(every), *numbers(len(every), pool, layer + 1))
    mx.eval(pool.arrays)
    return pool


def whole(pool: Pool, layer: int) -> np.ndarray:
    """All slots of a layer, (2 Hkv, slots, D)."""
    return np.concatenate([np.array(layers[layer]) for layers in pool.arrays], axis=1)


@given(st.data())
def test_writing_and_reading_any_slots(data: st.DataObject) -> None:
    segments = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    pool = filled(segments)
    total = sum(segments) * 4
    slots = data.draw(st.lists(st.integers(0, total - 1), unique=True, min_size=1))
    if data.draw(st.booleans()):
        slots.sort()
    expected, untouched = whole(pool, 1), whole(pool, 0)
    k, v = numbers(len(slots), pool, 9)
    pool.write(1, pool.places(slots), k, v)
    expected[:2, slots] = np.array(k).swapaxes(0, 1)
    expected[2:, slots] = np.array(v).swapaxes(0, 1)
    assert (whole(pool, 1) == expected).all()
    assert (whole(pool, 0) == untouched).all()
    keys, values = pool.read(1, slots)
    assert mx.array_equal(keys, k.swapaxes(0, 1))
    assert mx.array_equal(values, v.swapaxes(0, 1))


@pytest.mark.parametrize(
    ("slots", "kinds"),
    [
        ([7], [slice]),
        (list(range(5, 37)), [slice]),
        (list(range(5, 9)) + list(range(20, 29)), [slice, slice]),
        ([3, 19, 35, 51], [slice]),  # equal distances
        ([3, 19, 36, 51], [mx.array]),
        ([*range(8), 20, 30, 39, 45], [slice, mx.array]),
        (list(range(14, 18)), [slice, slice]),  # over the end of a segment
    ],
)
def test_neighbours_are_slices(slots: list[int], kinds: list[type]) -> None:
    segments = [16, 48] if slots == [14, 15, 16, 17] else [64]
    assert [type(u.slots) for u in Places(slots, segments).updates] == kinds


def test_slots_outside_of_the_pool_are_refused() -> None:
    pool = filled([2])
    for slot in (-1, 8):
        with pytest.raises(AssertionError, match="outside"):
            pool.places([0, slot])


def test_growing_adds_segments_of_zeros_and_moves_nothing() -> None:
    pool = filled([2])
    held, before = pool.arrays[0][1], whole(pool, 1)
    pool.grow([2, 3])
    pool.grow([2, 3])
    assert pool.arrays[0][1] is held
    after = whole(pool, 1)
    assert (after[:, :8] == before).all()
    assert after.shape == (4, 20, 3)
    assert not after[:, 8:].any()
    assert pool.segments == [2, 3]
    assert pool.nbytes == sum(a.nbytes for layers in pool.arrays for a in layers)
    assert pool.nbytes == 5 * pool.bytes_per_block
    with pytest.raises(AssertionError, match="resized"):
        pool.grow([3, 3])


def address(array: mx.array) -> int:
    return np.array(array, copy=False).__array_interface__["data"][0]


@pytest.mark.parametrize("blocks", [64, 4096])
def test_nothing_is_copied_to_write_or_to_attend(blocks: int) -> None:
    """Neither the place of the arrays nor the memory in use depends on the size of the pool."""
    before = mx.default_device()
    mx.set_default_device(mx.cpu)
    pool = Pool(2, 2, 16, mx.float32, 16)
    pool.grow([blocks, 4])
    places = [[address(a) for a in layers] for layers in pool.arrays]
    rows = [StepRow(BlockTable([9, 10, blocks + 1], 40), 1), StepRow(BlockTable([3, 4], 20), 3)]
    for _ in range(3):
        step = RunViews(pool, rows)
        q, (k, v) = mx.ones((4, 4, 16)), numbers(4, pool)
        mx.eval(q, k, v)
        mx.reset_peak_memory()
        used = mx.get_active_memory()
        out = [step(layer, q, k, v, None) for layer in range(2)]
        mx.eval(out)
        assert mx.get_peak_memory() - used < 64 * 1024  # the smaller segment alone has 128 KiB
    assert [[address(a) for a in layers] for layers in pool.arrays] == places
    mx.set_default_device(before)


@pytest.mark.parametrize("together", [1, 2**26])
def test_copying_blocks(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlxgpt.infer.paged.pool._COPIED_AT_ONCE", together)
    pool = filled([3, 4])
    places = [[address(a) for a in layers] for layers in pool.arrays]
    before = [whole(pool, layer) for layer in (0, 1)]
    # Block 2 moves to 5 while 6 moves to 2, and a part of 0 to another segment.
    pool.copy([Copy(2, 5, 4), Copy(6, 2, 4), Copy(0, 3, 2)])
    for layer, expected in enumerate(before):
        old = expected.copy()
        expected[:, 20:24] = old[:, 8:12]
        expected[:, 8:12] = old[:, 24:28]
        expected[:, 12:14] = old[:, 0:2]
        assert (whole(pool, layer) == expected).all()
    assert [[address(a) for a in layers] for layers in pool.arrays] == places
    pool.copy([])
