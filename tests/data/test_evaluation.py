"""Validation sees each token once, in batches of one shape; and what a batch is."""

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_tokenizers import ByteTokenizer

from mlxgpt.data import Batch, TokenFile, batch_bytes, evaluation_batches
from mlxgpt.errors import ConfigError, DataError


def token_file(count: int) -> TokenFile:
    return TokenFile(np.arange(1, count + 1, dtype=np.uint16), 65536, 1, count, "x")


def weighted(batches: list[Batch]) -> list[tuple[int, int]]:
    """Return (input, target) wherever the target counts."""
    return [
        (int(i), int(t))
        for b in batches
        for i, t, w in zip(
            b.input_ids.ravel(), b.targets.ravel(), b.loss_weights.ravel(), strict=True
        )
        if w
    ]


@given(st.integers(2, 80), st.integers(1, 5), st.integers(1, 12))
def test_each_token_but_the_first_is_a_target_once(count: int, rows: int, context: int) -> None:
    batches = evaluation_batches(token_file(count), rows, context)
    assert weighted(list(batches)) == [(i, i + 1) for i in range(1, count)]
    assert {b.shape for b in batches} == {(rows, context)}
    assert sum(float(b.loss_weights.sum()) for b in batches) == count - 1 == batches.num_targets
    assert all(b.loss_weights.any() for b in batches)
    padded = np.concatenate([b.targets[b.loss_weights == 0] for b in batches])
    assert not padded.any()
    assert len(batches) == len(list(batches))


@given(st.integers(2, 200), st.integers(1, 5), st.integers(1, 12), st.integers(1, 220))
def test_a_limit_takes_evenly_spaced_windows(
    count: int, rows: int, context: int, limit: int
) -> None:
    batches = evaluation_batches(token_file(count), rows, context, limit)
    seen = Counter(weighted(list(batches)))
    assert set(seen.values()) == {1}
    assert len(seen) == batches.num_targets <= max(limit, context)
    starts = sorted(i for i, _ in seen if (i - 1) % context == 0)
    windows = -(-(count - 1) // context)
    assert len(starts) == max(1, min(windows, limit // context))
    gaps = {(b - a) // context for a, b in pairwise(starts)}
    assert gaps <= {windows // len(starts), -(-windows // len(starts))}


def test_batches_can_be_indexed() -> None:
    batches = evaluation_batches(token_file(20), 2, 4)
    assert len(batches) == 3
    assert np.array_equal(batches[-1].targets, batches[2].targets)
    assert [b.shape for b in batches[1:]] == [(2, 4), (2, 4)]
    for index in (3, -4):
        with pytest.raises(IndexError):
            batches[index]


def test_too_few_tokens_and_wrong_sizes_are_refused() -> None:
    with pytest.raises(DataError, match=r"has 1 tokens, .* at least 2"):
        evaluation_batches(token_file(1), 1, 4)
    for arguments in ((0, 4), (1, 0), (1, 4, 0)):
        with pytest.raises(ConfigError, match="must be at least 1, got 0"):
            evaluation_batches(token_file(9), *arguments)


def test_bytes_are_those_of_the_weighted_targets() -> None:
    lengths = ByteTokenizer().token_byte_lengths
    batch = Batch(
        np.zeros((1, 4), np.int32),
        np.array([[65, 66, 256, 67]], np.int32),
        np.array([[1, 0, 1, 0.5]], np.float32),
    )
    assert batch_bytes(batch, lengths) == 1.5


def test_bytes_of_a_whole_split_are_those_of_its_text() -> None:
    text = "Grüße, Welt! 😀" * 50
    ids = np.array([*text.encode(), 256], np.uint16)
    file = TokenFile(ids, 257, 1, len(text.encode()), "x")
    total = sum(
        batch_bytes(b, ByteTokenizer().token_byte_lengths) for b in evaluation_batches(file, 3, 7)
    )
    assert total == file.num_bytes - 1  # the first byte is predicted by nothing


def test_rows_are_a_batch() -> None:
    ids = np.arange(12, dtype=np.int32).reshape(4, 3)
    batch = Batch(ids, ids + 1, np.ones((4, 3), np.float32), ids)
    part = batch.rows(1, 3)
    assert part.shape == (2, 3)
    names = {field.name for field in dataclasses.fields(Batch)} - {"num_tokens"}
    for name in names:
        assert np.array_equal(getattr(part, name), getattr(batch, name)[1:3])
    assert part.num_tokens is None  # who cuts rows apart does not know it
    assert batch.rows(0, 2).segment_ids is not None
    assert dataclasses.replace(batch, segment_ids=None).rows(0, 2).segment_ids is None


def test_wrong_types_and_shapes_are_our_own_fault() -> None:
    ids = np.zeros((2, 3), np.int32)
    weights = np.ones((2, 3), np.float32)
    for arrays in (
        (ids.astype(np.int64), ids, weights),
        (ids, ids[:1], weights),
        (ids, ids, weights.astype(np.float64)),
        (ids[0], ids[0], weights[0]),
        (ids, ids, weights, ids[:1]),
    ):
        with pytest.raises(AssertionError):
            Batch(*arrays)
