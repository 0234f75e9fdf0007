"""A kernel is tried before it is used: right, wrong, raising and silent ones; and what is kept."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mlxgpt.errors import MLXGPTWarning
from mlxgpt.infer.paged import kernel_proof
from mlxgpt.infer.paged.blocks import BlockTable
from mlxgpt.infer.paged.gathered import GatheredAttention
from mlxgpt.infer.paged.gpu_attention import GPUAttention
from mlxgpt.infer.paged.kernel_proof import ALLOWED, prove, trusted_kernel
from mlxgpt.infer.paged.metal_attention import MetalAttention
from mlxgpt.infer.paged.paged_kernel import KernelShape, PagedKernel
from mlxgpt.infer.paged.pool import Pool
from mlxgpt.infer.paged.step_attention import StepRow

SHAPE = KernelShape(mx.float16, 64, 2, 16)


class FakeKernel:
    """A launcher that reads the work list in numpy, and can be made to err."""

    tries = 0

    def __init__(self, *, name: str, spoil: Callable[[np.ndarray], Any], **_: Any) -> None:
        self.merges, self.spoil = "merge" in name, spoil

    def __call__(
        self,
        *,
        inputs: list[mx.array],
        template: list[tuple[str, Any]],
        grid: tuple[int, int, int],
        output_shapes: list[tuple[int, ...]],
        output_dtypes: list[mx.Dtype],
        **_: Any,
    ) -> list[mx.array]:
        numbers = [np.array(x.astype(mx.float32)).astype(np.float64) for x in inputs]
        made_for = dict(template)
        if self.merges:
            results = [_merge(*numbers, grid[2])]
        else:
            FakeKernel.tries += 1
            pool = np.concatenate(numbers[2:], axis=1)
            plan = numbers[1].astype(int)
            results = list(_attend(numbers[0], plan, pool, made_for, output_shapes, grid[2]))
            self.spoil(results[0])
        return [
            mx.array(r.astype(np.float32)).astype(d)
            for r, d in zip(results, output_dtypes, strict=True)
        ]


def _attend(
    q: np.ndarray,
    plan: np.ndarray,
    pool: np.ndarray,
    made_for: dict[str, Any],
    shapes: list[tuple[int, ...]],
    items: int,
) -> tuple[np.ndarray, np.ndarray]:
    out, stats = np.full(shapes[0], np.nan), np.full(shapes[1], np.nan)
    group, block, kv_heads = made_for["GROUP"], made_for["BLOCK"], len(pool) // 2
    for item in plan[: items * made_for["ITEM"]].reshape(items, -1):
        row, position, query, count, begin, end, window, dropped, table, part, parts = item
        for i in range(query, min(query + made_for["Q"], count)):
            token, last = i // group, position + i // group
            first = max(begin, last + 1 - window if window else 0)
            seen = np.arange(first, min(end, last + 1))
            slots = plan[table + (seen - dropped) // block] * block + (seen - dropped) % block
            for h in range(kv_heads):
                head, place = h * group + i % group, part + token * parts
                scores = pool[h, slots] @ q[row + token, head] / q.shape[2] ** 0.5
                top = scores.max(initial=-1e30)
                weights = np.exp(scores - top)
                stats[place, head] = top, weights.sum()
                out[place, head] = weights @ pool[kv_heads + h, slots] / max(weights.sum(), 1e-30)
    return out, stats


def _merge(partial: np.ndarray, stats: np.ndarray, parts: np.ndarray, tokens: int) -> np.ndarray:
    out = []
    for n in range(tokens):
        some = slice(int(parts[n]), int(parts[n + 1]))
        top = stats[some, :, :1].max(axis=0)
        weights = stats[some, :, 1:] * np.exp(stats[some, :, :1] - top)
        out.append((partial[some] * weights).sum(axis=0) / weights.sum(axis=0))
    return np.array(out)


def right(**arguments: Any) -> FakeKernel:
    return FakeKernel(**arguments, spoil=lambda _: None)


def wrong(**arguments: Any) -> FakeKernel:
    def spoil(out: np.ndarray) -> None:
        out[-1, -1, -1] += 1e-2

    return FakeKernel(**arguments, spoil=spoil)


def silent(**arguments: Any) -> FakeKernel:
    """Writes nothing in one place: whatever was there before, here NaN."""

    def spoil(out: np.ndarray) -> None:
        if arguments["name"].endswith("_1"):
            out[0, 0, 0] = np.nan

    return FakeKernel(**arguments, spoil=spoil)


def raising(**arguments: Any) -> FakeKernel:
    def spoil(_: np.ndarray) -> None:
        raise RuntimeError("[metal::Device] Unable to build metal library from source\nerror: x")

    return FakeKernel(**arguments, spoil=spoil)


@pytest.fixture(autouse=True)
def apple_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Pretend to have a GPU and an empty cache; call it to begin a new process."""
    monkeypatch.setattr(kernel_proof, "on_apple_gpu", lambda: True)
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path))

    def new_process() -> None:
        monkeypatch.setattr(kernel_proof, "_kernels", {})
        FakeKernel.tries = 0

    new_process()
    return new_process


@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
def test_a_right_kernel_passes_and_wrong_ones_do_not(dtype: mx.Dtype) -> None:
    shape = dataclasses.replace(SHAPE, dtype=dtype)
    proof = prove(PagedKernel(shape, right))
    assert proof.reason is None
    assert proof.difference <= proof.allowed == ALLOWED[dtype]
    reason = prove(PagedKernel(shape, wrong)).reason
    assert reason is not None
    assert "differs from the formula by 1." in reason
    assert "nan" in str(prove(PagedKernel(shape, silent)).reason)
    reason = "RuntimeError: [metal::Device] Unable to build metal library from source error: x"
    assert prove(PagedKernel(shape, raising)).reason == reason


@pytest.mark.parametrize("block_size", [1, 7, 16, 64, 1024])
@pytest.mark.parametrize(("head_dim", "group"), [(32, 1), (128, 7), (256, 3)])
def test_every_shape_can_be_tried(block_size: int, head_dim: int, group: int) -> None:
    shape = KernelShape(mx.float32, head_dim, group, block_size)
    assert prove(PagedKernel(shape, right)).reason is None


def test_success_is_tried_once_a_process_and_then_remembered(
    apple_gpu: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(trusted_kernel(SHAPE, right), PagedKernel)
    assert FakeKernel.tries == 2
    assert trusted_kernel(SHAPE, right) is trusted_kernel(SHAPE, right)
    assert FakeKernel.tries == 2
    apple_gpu()
    assert trusted_kernel(SHAPE, raising) is not None, "it has done well before"
    assert FakeKernel.tries == 0
    (file,) = (tmp_path / "kernels").iterdir()
    for word in ("float16", "mlx", "heads of 64"):
        assert word in file.read_text()
    for what in ("dtype", "head_dim", "group", "block_size"):
        other = {"dtype": mx.float32, "head_dim": 128, "group": 1, "block_size": 8}[what]
        assert trusted_kernel(dataclasses.replace(SHAPE, **{what: other}), right) is not None
    assert FakeKernel.tries == 8
    for place in ("source_hash", "describe_device"):  # another kernel, another machine
        apple_gpu()
        there = "f" * 64 if place == "source_hash" else _another_mlx()
        monkeypatch.setattr(kernel_proof, place, lambda it=there: it)
        assert trusted_kernel(SHAPE, right) is not None
        assert FakeKernel.tries == 2


def _another_mlx() -> object:
    return dataclasses.replace(kernel_proof.describe_device(), mlx="0.99")


def test_a_damaged_note_and_a_cache_that_cannot_be_written_mean_a_new_trial(
    apple_gpu: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted_kernel(SHAPE, right)
    (file,) = (tmp_path / "kernels").iterdir()
    file.write_text("{}")
    apple_gpu()
    trusted_kernel(SHAPE, right)
    assert FakeKernel.tries == 2
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("MLXGPT_CACHE", str(tmp_path / "a file"))
    apple_gpu()
    assert trusted_kernel(SHAPE, right) is not None


@pytest.mark.parametrize(("make", "word"), [(wrong, "differs"), (raising, "Unable to build")])
def test_a_failure_is_told_once_and_not_remembered(
    make: Callable[..., FakeKernel], word: str, apple_gpu: Callable[[], None], tmp_path: Path
) -> None:
    with pytest.warns(MLXGPTWarning, match=word) as told:
        kernels = [trusted_kernel(SHAPE, make) for _ in range(2)]
    assert kernels == [None, None]
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert not (tmp_path / "kernels").exists()
    apple_gpu()  # mended, say by another version of the system: it is tried again
    assert trusted_kernel(SHAPE, right) is not None


def test_without_an_apple_gpu_or_for_other_heads_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert trusted_kernel(dataclasses.replace(SHAPE, head_dim=80), right) is None
    monkeypatch.setattr(kernel_proof, "on_apple_gpu", lambda: False)
    assert trusted_kernel(SHAPE, right) is None
    assert FakeKernel.tries == 0


def test_the_seam_goes_by_the_kernel_or_by_its_plain_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    def attention(make: Callable[..., FakeKernel]) -> GPUAttention:
        monkeypatch.setattr(mx.fast, "metal_kernel", make)
        pool = Pool(1, 2, 64, mx.float16, 16)
        pool.grow([3])
        gpu = GPUAttention(pool, [StepRow(BlockTable([2, 0], 20), 3)])
        q, k, v = (mx.ones((3, heads, 64), dtype=mx.float16) for heads in (4, 2, 2))
        assert gpu(0, q, k, v, 2).shape == q.shape
        assert gpu.positions.tolist() == [17, 18, 19]
        return gpu

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(attention(right)._chosen, MetalAttention)
    monkeypatch.setattr(kernel_proof, "_kernels", {})
    monkeypatch.setattr(kernel_proof, "_remembered", lambda _: False)
    with pytest.warns(MLXGPTWarning, match="a slower way serves"):
        assert isinstance(attention(raising)._chosen, GatheredAttention)


@pytest.mark.metal
@pytest.mark.parametrize("dtype", ALLOWED, ids=str)
@pytest.mark.parametrize(("head_dim", "group"), [(32, 1), (64, 3), (96, 1), (128, 8), (256, 2)])
def test_metal_passes(dtype: mx.Dtype, head_dim: int, group: int) -> None:
    assert prove(PagedKernel(KernelShape(dtype, head_dim, group, 16))).reason is None
